from dataclasses import replace

import pytest
import torch

from polyclinic.engine.local import assign
from polyclinic.engine.run import runs_of
from polyclinic.engine.site_runner import SiteRunner
from polyclinic.federation.message import Message
from polyclinic.methods.fedavg import FedAvg
from polyclinic.methods.fedprox import FedProx
from polyclinic.methods.pulling import towards
from polyclinic.networks.parts import parameters, statistics
from tests.federations import NETS, equal

LAST = "evaluation.choose=last"
SGD = (
    "training.optimizer=sgd",
    "training.momentum=0.0",
    "training.weight_decay=0.0",
    "training.learning_rate=0.1",
    LAST,
)


@NETS
@pytest.mark.parametrize("keep", ["true", "false"])
def test_without_pull_it_is_fedavg(federation, network, keep):
    small = federation(**{"network.name": network, "training.keep_optimizer": keep})
    prox, fedavg = small.run("fedprox", "method.pull=0", LAST), small.run("fedavg", LAST)
    for owner in ["server", *(site.name for site in prox.folder.about().sites)]:
        assert equal(prox.tensors(owner), fedavg.tensors(owner))


@NETS
def test_with_one_step_of_descent_a_round_it_is_fedavg_for_every_pull(federation, network):
    small = federation(**{"network.name": network, "training.iterations": 1})
    prox, fedavg = small.run("fedprox", "method.pull=5", *SGD), small.run("fedavg", *SGD)
    assert equal(prox.tensors("server"), fedavg.tensors("server"))


def test_the_pull_changes_several_steps(federation):
    small = federation()
    prox, fedavg = small.run("fedprox", "method.pull=5", *SGD), small.run("fedavg", *SGD)
    assert not equal(prox.tensors("server"), fedavg.tensors("server"))


def visited(small, method, *settings):
    """A site after a visit in which it received the first weights, and these."""
    study = small.study("fedprox", *settings)
    (run,) = runs_of(study, small.folder / "runs")
    data = small.data(study)
    runner = SiteRunner(replace(assign(run, data), method=method), torch.device("cpu"))
    (stage,) = method.each_round()
    message = Message(runner.first_weights())
    site = runner._site(runner.assignment.sites[0], data[0], stage, message, None, 1)
    method.visit(site)
    return site


@pytest.mark.parametrize("kinds", [("mask",), ("point",), ("block",)])
def test_a_stronger_pull_holds_a_site_nearer_to_what_it_received(federation, kinds):
    small = federation(kinds=kinds, **{"training.iterations": 6})
    distances = []
    for pull in (0.0, 1.0, 4.0):
        site = visited(small, FedProx(pull), *SGD)
        apart = site.weights.pick(parameters(site.net)).flat
        distances.append(
            float((apart - site.message.weights.pick(parameters(site.net)).flat).norm())
        )
    assert distances[0] > distances[1] > distances[2] > 0


def test_the_pull_is_the_gradient_of_half_the_squared_distance(federation):
    site = visited(federation(), FedAvg(), *SGD)
    learning = dict(site.net.named_parameters())
    half = sum(
        (parameter - site.message.weights[name]).square().sum() / 2
        for name, parameter in learning.items()
    )
    gradients = torch.autograd.grad(half, list(learning.values()))
    for parameter in learning.values():
        parameter.grad = torch.full_like(parameter, 2.0)
    towards(site.message.weights, 0.3)(learning)
    for parameter, gradient in zip(learning.values(), gradients, strict=True):
        torch.testing.assert_close(parameter.grad, 2.0 + 0.3 * gradient)
    assert any(float(gradient.abs().max()) > 0 for gradient in gradients)


def test_where_nothing_moved_yet_the_pull_is_exactly_none(federation):
    """The norm that is not squared has no number there."""
    site = visited(federation(), FedAvg(), *SGD)
    site.load(site.message.weights)
    learning = dict(site.net.named_parameters())
    for parameter in learning.values():
        parameter.grad = torch.zeros_like(parameter)
    towards(site.message.weights, 1.0)(learning)
    assert all(not parameter.grad.any() for parameter in learning.values())


def test_running_statistics_are_not_pulled(federation):
    """In the first step the pull is none, so after it nothing but a statistic could differ."""
    small = federation(**{"training.iterations": 1})
    pulled, free = visited(small, FedProx(5.0), *SGD), visited(small, FedAvg(), *SGD)
    names = statistics(free.net)
    assert equal(dict(pulled.take(names)), dict(free.take(names)))
    assert not equal(dict(free.take(names)), dict(free.message.weights.pick(names)))


@pytest.mark.parametrize("method", ["fedprox", "scaffold", "fedavg"])
def test_fine_tuning_follows_and_leaves_the_server_alone(federation, method):
    small = federation()
    plain = small.run(method, LAST)
    tuned = small.run(method, LAST, then='{name = "finetune", iterations = 2}')
    idle = small.run(method, LAST, then='{name = "finetune", iterations = 0}')
    assert equal(plain.tensors("server"), tuned.tensors("server"))
    for site in plain.folder.about().sites:
        assert equal(plain.tensors(site.name), idle.tensors(site.name))
        assert not equal(plain.site(site.name), tuned.site(site.name))


def test_fine_tuning_after_an_idle_pull_is_fine_tuning_after_fedavg(federation):
    """So no pull is left in it: with one, the tuned models would differ."""
    small = federation(rounds=1, **{"training.iterations": 1})
    then = '{name = "finetune", iterations = 3}'
    prox = small.run("fedprox", "method.pull=5", *SGD, then=then)
    fedavg = small.run("fedavg", *SGD, then=then)
    for site in prox.folder.about().sites:
        assert equal(prox.site(site.name), fedavg.site(site.name))


def test_the_pull_is_towards_the_weights_of_this_stage_and_not_of_an_earlier_one(federation):
    site = visited(federation(), FedProx(5.0), *SGD)
    later = replace(site, message=Message(site.weights.copy()))
    learning = dict(site.net.named_parameters())
    for parameter in learning.values():
        parameter.grad = torch.zeros_like(parameter)
    towards(later.message.weights, 1.0)(learning)
    assert all(not parameter.grad.any() for parameter in learning.values())
