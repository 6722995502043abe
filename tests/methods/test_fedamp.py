import numpy as np
import pytest
import torch

from polyclinic.methods.fedamp import MODEL, FedAMP, attention
from polyclinic.networks.parts import parameters
from tests.federations import equal
from tests.methods.toy import STATISTIC, batches_of, opened, stacked, toy_replies, toy_server

LAST = "evaluation.choose=last"
SGD = (
    "training.optimizer=sgd",
    "training.momentum=0.0",
    "training.weight_decay=0.0",
    "training.schedule=constant",
    "training.learning_rate=0.1",
    "network.dropout=[0, 0, 0, 0, 0]",
)


def test_a_mixture_of_the_own_model_alone_is_local_training(federation):
    small = federation(rounds=3)
    fedamp = small.run("fedamp", "method.own_share=1.0", "method.pull=0.0", LAST)
    local = small.run("local", LAST)
    for site in local.folder.about().sites:
        assert equal(fedamp.site(site.name), local.site(site.name))


def test_one_site_is_local_training_too(federation):
    small = federation(sites=1, rounds=3)
    fedamp, local = small.run("fedamp", "method.pull=0.0", LAST), small.run("local", LAST)
    (site,) = local.folder.about().sites
    assert equal(fedamp.site(site.name), local.site(site.name))


def test_equal_shares_are_fedavg_with_equal_weights(federation):
    """A third of the own model and blunt attention to two others: all start from the mean."""
    small = federation(sites=3, rounds=2)
    alike = ("federation.weighting=uniform", *SGD, LAST)
    settings = (f"method.own_share={1 / 3}", "method.sharpness=0.0", "method.pull=0.0")
    fedamp = small.run("fedamp", *settings, *alike).tensors("server")
    fedavg = small.run("fedavg", *alike).tensors("server")
    for name, tensor in fedavg.items():
        torch.testing.assert_close(fedamp[name], tensor, rtol=1e-3, atol=1e-4)


def test_attention_is_the_published_formula():
    models = torch.randn(4, 50, generator=torch.Generator().manual_seed(0))
    found = attention(models, 0.4, 3.0).numpy()
    rows = models.double().numpy()
    for i in range(4):
        cosines = {
            j: rows[i] @ rows[j] / np.linalg.norm(rows[i]) / np.linalg.norm(rows[j])
            for j in range(4)
            if j != i
        }
        total = sum(np.exp(3.0 * cosine) for cosine in cosines.values())
        for j, cosine in cosines.items():
            assert found[i, j] == pytest.approx(0.6 * np.exp(3.0 * cosine) / total)
        assert found[i, i] == pytest.approx(0.4)
        assert found[i].sum() == pytest.approx(1)


def test_the_likest_site_gets_the_most_and_sharply_all():
    models = torch.tensor([[1.0, 0.0], [0.9, 0.1], [-1.0, 0.2]])
    blunt, sharp = attention(models, 0.5, 0.0), attention(models, 0.5, 1000.0)
    torch.testing.assert_close(blunt[0, 1:], torch.full((2,), 0.25, dtype=torch.float64))
    torch.testing.assert_close(sharp[0], torch.tensor([0.5, 0.5, 0.0], dtype=torch.float64))


def test_each_site_gets_its_own_mixture_statistics_included():
    method, server, replies = FedAMP(sharpness=5.0), toy_server(), toy_replies(1)
    first = method.message(server, server.sites[0])
    assert torch.equal(first.weights.flat, server.weights.flat)
    method.combine(server, replies)
    rows = attention(stacked(replies).float(), 0.5, 5.0)
    for info in server.sites:
        mixture = method.message(server, info).weights
        for name in ("conv.weight", STATISTIC):
            expected = (rows[info.index][:, None] * stacked(replies, name)).sum(0)
            torch.testing.assert_close(mixture[name].double(), expected, rtol=1e-5, atol=1e-6)


def test_a_site_that_is_away_counts_with_its_newest_model():
    method, server = FedAMP(), toy_server()
    method.combine(server, toy_replies(1))
    method.combine(server, dict(list(toy_replies(2).items())[:2]))
    assert torch.equal(server.memory[f"{MODEL}/site2"], toy_replies(1)["site2"].weights.flat)
    assert torch.equal(server.memory[f"{MODEL}/site0"], toy_replies(2)["site0"].weights.flat)


def test_the_pull_is_towards_the_mixture_and_has_a_gradient(federation):
    pull, rate = 3.0, 0.1
    small = federation()
    site, twin = opened(small, "fedamp", *SGD), opened(small, "fedamp", *SGD)
    FedAMP(pull=pull).visit(site)
    mixture = {n: p.detach().clone() for n, p in twin.net.named_parameters()}
    twin.net.train()
    for batch in batches_of(twin, 2):
        twin.net.zero_grad()
        near = sum((p - mixture[n]).square().sum() for n, p in twin.net.named_parameters())
        (FedAMP().loss(twin, batch) + pull / 2 * near).backward()
        with torch.no_grad():
            for p in twin.net.parameters():
                p -= rate * p.grad
    for name in parameters(site.net):
        torch.testing.assert_close(site.weights[name], twin.weights[name], rtol=1e-3, atol=1e-4)
    unpulled = opened(small, "fedamp", *SGD)
    FedAMP(pull=0.0).visit(unpulled)
    assert not torch.equal(unpulled.weights.flat, site.weights.flat)


def test_the_record_says_who_attends_to_whom(federation):
    done = federation(rounds=2).run("fedamp", LAST)
    tables = [table for table in done.folder.tables() if table.name == "attention"]
    assert len(tables) == 2
    for row in tables[-1].values:
        assert sum(row) == pytest.approx(1)


def test_sites_use_the_model_they_trained(federation):
    done = federation(rounds=2).run("fedamp", LAST)
    server = done.tensors("server")
    for info in done.folder.about().sites:
        own = done.site(info.name)["head.weight"]
        assert any(own.flatten()[0] == value for value in server[f"memory/{MODEL}/{info.name}"])
