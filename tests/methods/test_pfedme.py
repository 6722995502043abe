import pytest
import torch

from polyclinic.methods.pfedme import PERSONAL, PFedMe
from polyclinic.networks.parts import parameters
from tests.federations import Done, equal
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


def personal(done: Done, site: str) -> dict[str, torch.Tensor]:
    found = done.memory(site)
    prefix = f"{PERSONAL}/"
    return {n.removeprefix(prefix): t for n, t in found.items() if n.startswith(prefix)}


@pytest.mark.parametrize("pull", [0.0, 0.1, 100.0])
def test_shared_weights_that_follow_every_step_to_its_end_are_fedavgs(federation, pull):
    """The paper's λ = 1 / rate with one inner step: there is nothing to be held near to."""
    small = federation(rounds=3)
    settings = (f"method.pull={pull}", "method.inner_steps=1", "method.follow=1.0", LAST)
    pfedme = small.run("pfedme", "method.weighting=paper", *settings)
    fedavg = small.run("fedavg", "federation.weighting=uniform", LAST)
    assert equal(pfedme.tensors("server"), fedavg.tensors("server"))


def test_shared_weights_that_do_not_follow_stay_where_they_began(federation):
    """The paper's λ = 0: nothing joins the sites, each trains from the common start."""
    small = federation(rounds=2)
    none = ("method.pull=0.0", "method.follow=0.0", LAST)
    done = small.run("pfedme", *none)
    start = opened(small, "pfedme").weights
    server = done.tensors("server")
    for name in start.names:
        assert torch.equal(server[f"weights/{name}"], start[name]) == ("running" not in name)
    local = small.run("local", "federation.rounds=1", "training.schedule=constant", LAST)
    alone = small.run("pfedme", *none, "federation.rounds=1", "training.schedule=constant")
    for site in local.folder.about().sites:
        assert equal(personal(alone, site.name), local.site(site.name))


@pytest.mark.parametrize("inner_steps", [1, 2, 3, 10])
def test_sites_follow_the_published_rule(federation, inner_steps):
    pull, follow, rate = 2.0, 0.3, 0.1
    small = federation(**{"training.iterations": 6})
    small.base.remove("training.iterations=2")
    site, twin = opened(small, "pfedme", *SGD), opened(small, "pfedme", *SGD)
    method = PFedMe(pull=pull, inner_steps=inner_steps, follow=follow)
    method.visit(site)
    shared = {n: p.detach().clone() for n, p in twin.net.named_parameters()}
    twin.net.train()
    for number, batch in enumerate(batches_of(twin, 6), start=1):
        twin.net.zero_grad()
        near = sum((p - shared[n]).square().sum() for n, p in twin.net.named_parameters())
        (method.loss(twin, batch) + pull / 2 * near).backward()
        with torch.no_grad():
            for name, p in twin.net.named_parameters():
                p -= rate * p.grad
                if number % inner_steps == 0 or number == 6:
                    shared[name] = shared[name] - follow * (shared[name] - p)
    for name in parameters(site.net):
        torch.testing.assert_close(site.weights[name], shared[name], rtol=1e-3, atol=2e-4)
        own = site.memory[f"{PERSONAL}/{name}"]
        torch.testing.assert_close(own, twin.weights[name], rtol=1e-3, atol=2e-4)


def test_a_stronger_pull_holds_the_personal_model_nearer(federation):
    distances = []
    for pull in (0.0, 2.0, 8.0):
        site = opened(federation(**{"training.iterations": 6}), "pfedme", *SGD)
        before = site.weights.copy()
        PFedMe(pull=pull, follow=0.0, inner_steps=100).visit(site)
        own = [site.memory[f"{PERSONAL}/{n}"] - before[n] for n in parameters(site.net)]
        distances.append(float(torch.stack([each.norm() for each in own]).norm()))
    assert distances[0] > distances[1] > distances[2]


@pytest.mark.parametrize("rate", [0.3, 1.0, 1.7])
def test_the_server_goes_towards_the_mean_and_averages_statistics(rate):
    server, replies = toy_server(), toy_replies(1)
    before = server.weights["conv.weight"].double()
    PFedMe(server_rate=rate).combine(server, replies)
    expected = (1 - rate) * before + rate * stacked(replies).mean(0)
    torch.testing.assert_close(
        server.weights["conv.weight"].double(), expected, rtol=1e-5, atol=1e-6
    )
    assert torch.equal(server.weights[STATISTIC], stacked(replies, STATISTIC).mean(0).float())


def test_the_personal_model_is_the_one_that_is_used(federation):
    done = federation(rounds=2).run("pfedme", LAST)
    models = [personal(done, site.name) for site in done.folder.about().sites]
    assert not torch.equal(models[0]["head.weight"], models[1]["head.weight"])
    site = opened(federation(), "pfedme")
    method = PFedMe()
    method.receive(site)
    method.train(site)
    shared = site.weights["head.weight"].clone()
    with method.in_use(site):
        assert not torch.equal(site.weights["head.weight"], shared)
    assert torch.equal(site.weights["head.weight"], shared)
