"""FedAvgM, FedAdam and FedYogi against their formulas, and statistics that stay means."""

import numpy as np
import pytest
import torch

from polyclinic.methods.server_optimizers import FedAdam, FedAvgM, FedYogi
from tests.federations import equal
from tests.methods.toy import STATISTIC, stacked, toy_replies, toy_server

LAST = "evaluation.choose=last"


def test_no_momentum_and_a_whole_step_are_fedavg_bit_by_bit(federation):
    small = federation(rounds=3)
    settings = ("method.momentum=0.0", "method.rate=1.0", LAST)
    fedavgm = small.run("fedavgm", *settings)
    fedavg = small.run("fedavg", LAST)
    weights = {n: t for n, t in fedavgm.tensors("server").items() if n.startswith("weights/")}
    assert equal(weights, fedavg.tensors("server"))
    for site in fedavg.folder.about().sites:
        assert equal(fedavgm.site(site.name), fedavg.site(site.name))


def momentum(state, change, method):
    state["m"] = method.momentum * state.get("m", 0) + change
    return method.rate * state["m"]


def adam(state, change, method):
    state["m"] = method.momentum * state.get("m", 0) + (1 - method.momentum) * change
    old = state.get("v", np.full_like(change, method.smallest**2))
    state["v"] = method.decay * old + (1 - method.decay) * change**2
    return method.rate * state["m"] / (np.sqrt(state["v"]) + method.smallest)


def yogi(state, change, method):
    state["m"] = method.momentum * state.get("m", 0) + (1 - method.momentum) * change
    old = state.get("v", np.full_like(change, method.smallest**2))
    state["v"] = old - (1 - method.decay) * change**2 * np.sign(old - change**2)
    return method.rate * state["m"] / (np.sqrt(state["v"]) + method.smallest)


@pytest.mark.parametrize(
    ("method", "formula"),
    [
        (FedAvgM(momentum=0.8, rate=0.5), momentum),
        (FedAdam(rate=0.3), adam),
        (FedYogi(rate=0.3), yogi),
    ],
)
def test_several_rounds_follow_the_published_formula(method, formula):
    server, state = toy_server(), {}
    expected = server.weights["conv.weight"].double().numpy().copy()
    for number in range(4):
        replies = toy_replies(number)
        change = stacked(replies).mean(0).numpy() - expected
        expected = expected + formula(state, change, method)
        method.combine(server, replies)
        np.testing.assert_allclose(server.weights["conv.weight"], expected, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("method", [FedAvgM(rate=50.0), FedAdam(rate=50.0), FedYogi(rate=50.0)])
def test_statistics_are_plain_averages_whatever_the_step(method):
    server = toy_server()
    for number in range(3):
        replies = toy_replies(number)
        method.combine(server, replies)
        mean = stacked(replies, STATISTIC).mean(0).float()
        assert torch.equal(server.weights[STATISTIC], mean)
    assert all(len(moment) == 30 for moment in server.memory.values())


@pytest.mark.parametrize("method", ["fedavgm", "fedadam", "fedyogi"])
def test_a_networks_statistics_are_those_of_fedavg_after_the_first_round(federation, method):
    small = federation(rounds=1)
    done, fedavg = (small.run(name, LAST).tensors("server") for name in (method, "fedavg"))
    statistics = [name for name in fedavg if "running" in name]
    assert statistics
    assert all(torch.equal(done[name], fedavg[name]) for name in statistics)
    small_steps = small.run(method, "method.rate=0.001", LAST).tensors("server")
    assert not torch.equal(small_steps["weights/head.weight"], fedavg["weights/head.weight"])


def test_private_statistics_do_not_disturb_it(federation):
    done = federation().run("fedadam", "federation.statistics=private", LAST)
    assert not any("running" in name for name in done.tensors("server"))


def test_the_change_may_come_from_a_median(federation):
    settings = ("method.momentum=0.0", "federation.combine=median", LAST)
    small = federation(rounds=1)
    fedavgm = small.run("fedavgm", *settings).tensors("server")
    fedavg = small.run("fedavg", *settings[1:]).tensors("server")
    assert all(torch.equal(fedavgm[name], fedavg[name]) for name in fedavg)
