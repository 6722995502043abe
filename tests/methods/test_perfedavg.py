import pytest
import torch

from polyclinic.federation.method import plain_loss
from polyclinic.methods.fast_weights import loss_at, stepped
from polyclinic.methods.perfedavg import PerFedAvg
from polyclinic.networks.parts import parameters, statistics
from tests.federations import equal
from tests.methods.toy import batches_of, opened

LAST = "evaluation.choose=last"
SGD = (
    "training.optimizer=sgd",
    "training.momentum=0.0",
    "training.weight_decay=0.0",
    "training.schedule=constant",
    "training.learning_rate=0.1",
)
STILL = "network.dropout=[0, 0, 0, 0, 0]"


@pytest.mark.parametrize("exact", ["true", "false"])
def test_an_inner_rate_of_zero_is_fedavg(federation, exact):
    small = federation(rounds=2)
    settings = ("method.inner_rate=0.0", f"method.exact={exact}", LAST)
    done, fedavg = small.run("per-fedavg", *settings), small.run("fedavg", LAST)
    for owner in ("server", *(site.name for site in fedavg.folder.about().sites)):
        if exact == "false":
            assert equal(done.tensors(owner), fedavg.tensors(owner))
        for name, tensor in fedavg.tensors(owner).items():
            torch.testing.assert_close(done.tensors(owner)[name], tensor, rtol=1e-3, atol=1e-4)


def test_the_first_order_rule_is_the_gradient_there_applied_here(federation):
    inner_rate, rate = 0.5, 0.1
    small = federation()
    site, twin = opened(small, "per-fedavg", *SGD, STILL), opened(small, "per-fedavg", *SGD, STILL)
    PerFedAvg(inner_rate=inner_rate).visit(site)
    twin.net.train()
    pairs = zip(batches_of(twin, 2, "inner"), batches_of(twin, 2), strict=True)
    for first, second in pairs:
        here = twin.weights.copy()
        for batch, length in ((first, inner_rate), (second, 0.0)):
            twin.net.zero_grad()
            plain_loss(twin, batch).backward()
            with torch.no_grad():
                for p in twin.net.parameters():
                    p -= length * p.grad
        there = {n: p.grad.clone() for n, p in twin.net.named_parameters()}
        twin.load({n: here[n] - rate * there[n] for n in there})
    for name in parameters(site.net):
        torch.testing.assert_close(site.weights[name], twin.weights[name], rtol=1e-3, atol=1e-5)


def test_the_exact_rule_has_the_slope_of_the_loss_after_the_step(federation):
    """Held against differences of the loss itself, in double precision."""
    site = opened(federation(), "per-fedavg", STILL)
    site.net.double().train()
    first, second = (
        type(batch)(batch.images.double(), batch.labels) for batch in batches_of(site, 2)
    )

    def value(exact=True):
        inner = loss_at(site, {}, first)
        return loss_at(site, stepped(site, inner, 0.5, exact=exact), second)

    weight = site.net.head.weight
    found = {
        exact: torch.autograd.grad(value(exact), weight)[0].flatten()[0] for exact in (True, False)
    }
    place = (0,) * weight.dim()
    tiny, values = 1e-5, []
    for sign in (1, -1):
        with torch.no_grad():
            weight[place] += sign * tiny
        values.append(float(value().detach()))
        with torch.no_grad():
            weight[place] -= sign * tiny
    slope = (values[0] - values[1]) / (2 * tiny)
    assert float(found[True]) == pytest.approx(slope, rel=1e-3, abs=1e-8)
    assert abs(float(found[False]) - slope) > 1e-3 * abs(slope)


def test_the_inner_pass_leaves_running_statistics_to_the_outer_one(federation):
    site, plain = (opened(federation(), "per-fedavg", STILL) for _ in range(2))
    PerFedAvg(inner_rate=0.0).visit(site)
    plain.fit(plain_loss)
    for name in statistics(site.net):
        assert torch.equal(site.weights[name], plain.weights[name])


def test_sites_use_the_weights_after_a_step_on_their_training_images(federation):
    small = federation(rounds=1)
    used, unused = (
        small.run("per-fedavg", f"method.adaptation={steps}", "method.inner_rate=0.5", LAST)
        for steps in (2, 0)
    )
    server = used.tensors("server")
    assert equal(server, unused.tensors("server"))
    for site in used.folder.about().sites:
        for name, tensor in unused.site(site.name).items():
            assert torch.equal(server[f"weights/{name}"], tensor)
        adapted = used.site(site.name)
        assert not torch.equal(adapted["head.weight"], server["weights/head.weight"])
        statistic = next(name for name in adapted if "running" in name)
        assert torch.equal(adapted[statistic], server[f"weights/{statistic}"])


@pytest.mark.parametrize("kinds", [("point",), ("scribble",)])
def test_it_learns_from_weak_labels(federation, kinds):
    assert federation(kinds=kinds, rounds=1).run("per-fedavg", LAST).folder.finished
