import pytest
import torch

from polyclinic.methods.feddyn import DRIFT, FedDyn
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


def test_without_a_pull_it_is_fedavg_with_equal_weights(federation):
    small = federation(rounds=3)
    feddyn = small.run("feddyn", "method.pull=0.0", "method.weighting=paper", LAST)
    fedavg = small.run("fedavg", "federation.weighting=uniform", LAST)
    assert equal(feddyn.tensors("server"), fedavg.tensors("server"))


def test_a_pull_that_goes_to_zero_leaves_the_sites_work_alone(federation):
    trained = []
    for pull in (0.0, 1e-12, 1.0):
        site = opened(federation(), "feddyn", *SGD)
        FedDyn(pull=pull).visit(site)
        trained.append(site.weights.copy().flat)
    torch.testing.assert_close(trained[0], trained[1], rtol=0, atol=1e-7)
    assert (trained[0] - trained[2]).abs().max() > 1e-4


def test_the_server_follows_the_published_formula():
    """In the paper h falls by pull times the mean change, and the weights are the mean − h/pull."""
    method, server, pull = FedDyn(pull=0.3), toy_server(sites=4), 0.3
    expected, h = server.weights["conv.weight"].double(), 0.0
    for number in range(4):
        replies = toy_replies(number, sites=4 if number else 2)  # two sites are away at first
        h = h - pull * (stacked(replies) - expected).sum(0) / 4
        expected = stacked(replies).mean(0) - h / pull
        method.combine(server, replies)
        torch.testing.assert_close(
            server.weights["conv.weight"].double(), expected, rtol=1e-4, atol=1e-5
        )
        mean = stacked(replies, STATISTIC).mean(0).float()
        assert torch.equal(server.weights[STATISTIC], mean)


def test_sites_follow_the_published_formula(federation):
    """There a site lowers loss − ⟨h, w⟩ + pull/2 · |w − received|²; h falls by pull · change."""
    pull, rate = 0.5, 0.1
    site = opened(federation(), "feddyn", f"method.pull={pull}", *SGD)
    method = FedDyn(pull=pull)
    twin = opened(federation(), "feddyn", f"method.pull={pull}", *SGD)
    h = {n: torch.zeros_like(p) for n, p in twin.net.named_parameters()}
    for number in (1, 2):
        site.round = twin.round = number
        method.receive(site)
        twin.load(twin.message.weights)
        received = {n: p.detach().clone() for n, p in twin.net.named_parameters()}
        method.train(site)
        twin.net.train()
        for batch in batches_of(twin, 2):
            twin.net.zero_grad()
            near = sum(
                pull / 2 * (p - received[n]).square().sum() - (h[n] * p).sum()
                for n, p in twin.net.named_parameters()
            )
            (method.loss(twin, batch) + near).backward()
            with torch.no_grad():
                for p in twin.net.parameters():
                    p -= rate * p.grad
        h = {n: h[n] - pull * (p.detach() - received[n]) for n, p in twin.net.named_parameters()}
        for name in parameters(site.net):
            torch.testing.assert_close(site.weights[name], twin.weights[name], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("weighting", ["samples", "uniform"])
def test_drift_is_that_of_parameters_and_the_mean_of_the_sites(federation, weighting):
    done = federation(rounds=3).run("feddyn", f"federation.weighting={weighting}", LAST)
    server = done.tensors("server")
    infos = done.folder.about().sites
    sites = [done.memory(site.name)[DRIFT] for site in infos]
    counts = torch.tensor([s.train if weighting == "samples" else 1.0 for s in infos])
    mean = (torch.stack(sites) * (counts / counts.sum())[:, None]).sum(0)
    torch.testing.assert_close(server[f"memory/{DRIFT}"], mean, rtol=1e-4, atol=1e-6)
    learned = [n for n in server if n.startswith("weights/") and "running" not in n]
    assert len(sites[0]) == sum(server[name].numel() for name in learned)


def test_sites_that_do_not_move_are_a_fixed_point():
    server = toy_server()
    still = {f"site{n}": reply for n, reply in enumerate(toy_replies(0).values())}
    for reply in still.values():
        reply.weights.flat.copy_(server.weights.flat)
    before = server.weights.copy()
    FedDyn().combine(server, still)
    assert torch.equal(server.weights.flat, before.flat)


@pytest.mark.parametrize("keep", ["true", "false"])
def test_it_works_with_either_optimizer_policy_and_private_statistics(federation, keep):
    settings = (f"training.keep_optimizer={keep}", "federation.statistics=private", LAST)
    done = federation(rounds=2).run("feddyn", *settings)
    assert not any("running" in name for name in done.tensors("server"))
