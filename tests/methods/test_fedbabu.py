from dataclasses import dataclass

import pytest
import torch

from polyclinic.engine.local import assign
from polyclinic.engine.site_runner import SiteRunner
from polyclinic.methods import METHODS
from polyclinic.methods.fedbabu import FedBABU
from polyclinic.networks.parts import everything, parameters, part
from tests.federations import NETS, equal
from tests.small_unet import TABLES, SmallUNet

LAST = "evaluation.choose=last"
UNTUNED = ("method.tuning.iterations=0", LAST)


@dataclass(frozen=True)
class NoHead(FedBABU):
    """FedBABU whose head is empty, tuning under the name of the finishing step."""

    def head(self, net):
        return frozenset()

    def after(self):
        return self.tuning.stages(self)


@dataclass(frozen=True)
class NoBody(FedBABU):
    """FedBABU whose body is empty."""

    def head(self, net):
        return everything(net)


@pytest.fixture
def limits(monkeypatch):
    monkeypatch.setitem(METHODS, "nohead", NoHead)
    monkeypatch.setitem(METHODS, "nobody", NoBody)


def first_weights(done, small):
    """What every site of the run began with."""
    assignment = assign(done.run, small.data(done.run.study))
    return SiteRunner(assignment, torch.device("cpu")).initial


@NETS
@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])  # momentum and decay move zero gradients
def test_heads_rest_bit_by_bit_until_they_are_tuned(federation, network, optimizer):
    small = federation(rounds=3, **{"network.name": network, "training.optimizer": optimizer})
    done = small.run("fedbabu", "training.weight_decay=0.1", *UNTUNED)
    first = first_weights(done, small)
    net = TABLES.network[network](channels=1, classes=2, width=2)
    heads = part(net, "head")
    for site in done.folder.about().sites:
        own = done.site(site.name)
        assert all(torch.equal(own[name], first[name]) for name in heads)
        assert not any(
            torch.equal(own[name], first[name])
            for name in parameters(net) - heads
            if name.endswith("weight")
        )


@NETS
def test_with_an_empty_head_it_is_fedavg_and_fine_tuning(federation, limits, network):
    small = federation(**{"network.name": network})
    none = small.run("nohead", "method.tuning.iterations=3", LAST)
    fedavg = small.run("fedavg", LAST, then='{name = "finetune", iterations = 3}')
    for owner in ["server", *(site.name for site in none.folder.about().sites)]:
        assert equal(none.tensors(owner), fedavg.tensors(owner))


def test_with_an_empty_body_nothing_changes_until_it_is_tuned(federation, limits):
    small = federation()
    done = small.run("nobody", *UNTUNED)
    first = first_weights(done, small)
    for site in done.folder.about().sites:
        assert equal(done.site(site.name), dict(first))
    tuned = small.run("nobody", "method.tuning.iterations=2", LAST)
    for site in done.folder.about().sites:
        assert not equal(done.site(site.name), tuned.site(site.name))


def test_bodies_are_equal_everywhere_and_travel_alone(federation):
    done = federation().run("fedbabu", *UNTUNED)
    net = SmallUNet(channels=1, classes=2)
    shared = FedBABU().shares(net)
    assert {name.removeprefix("weights/") for name in done.tensors("server")} == shared
    first, *others = (done.site(site.name) for site in done.folder.about().sites)
    assert all(equal(first, other) for other in others)  # the head too, which nobody moved


@pytest.mark.parametrize(
    ("tuned", "moves"),
    [
        ("all", ("encoder", "decoder", "head")),
        ("body", ("encoder", "decoder")),
        ("head", ("head",)),
        ("decoder", ("decoder",)),
        ("encoder", ("encoder",)),
    ],
)
def test_only_the_part_to_be_tuned_is_tuned(federation, tuned, moves):
    small = federation()
    before = small.run("fedbabu", *UNTUNED)
    after = small.run("fedbabu", "method.tuning.iterations=2", f"method.tuning.part={tuned}", LAST)
    assert equal(before.tensors("server"), after.tensors("server"))
    net = SmallUNet(channels=1, classes=2)
    learning = parameters(net) & frozenset().union(*(part(net, name) for name in moves))
    for site in before.folder.about().sites:
        own, untuned = after.site(site.name), before.site(site.name)
        moved = {name for name in parameters(net) if not torch.equal(own[name], untuned[name])}
        assert moved == learning


def test_a_finishing_step_can_tune_a_part_as_well(federation):
    small = federation()
    plain = small.run("fedavg", LAST)
    tuned = small.run("fedavg", LAST, then='{name = "finetune", iterations = 2, part = "head"}')
    for site in plain.folder.about().sites:
        own, untuned = tuned.site(site.name), plain.site(site.name)
        moved = {name for name in own if not torch.equal(own[name], untuned[name])}
        assert {name for name in moved if "running" not in name} == {"head.weight", "head.bias"}


@pytest.mark.parametrize("tuning", ["0", "2"])
def test_calibration_can_follow_with_and_without_tuning_before(federation, tuning):
    small = federation()
    settings = (f"method.tuning.iterations={tuning}", LAST)
    before = small.run("fedbabu", *settings)
    idle = small.run("fedbabu", *settings, then='{name = "igc", iterations = 0}')
    after = small.run("fedbabu", *settings, then='{name = "igc", iterations = 2}')
    plain = small.run("fedbabu", *settings, then='{name = "igc", iterations = 2, weight = 0}')
    assert equal(before.tensors("server"), after.tensors("server"))
    apart = []
    for site in before.folder.about().sites:
        assert equal(before.site(site.name), idle.site(site.name))
        assert not equal(before.site(site.name), after.site(site.name))
        apart.append(not equal(plain.site(site.name), after.site(site.name)))
    # Models that are all alike do not disagree: without tuning nobody differs from the server.
    assert all(apart) == (tuning == "2")


def test_weak_labels_are_learned_from_and_tuned_with(federation):
    kinds = ("point", "scribble", "block")
    done = federation(kinds=kinds).run("fedbabu", "method.tuning.iterations=2", LAST)
    assert {site.kind for site in done.folder.about().sites} == set(kinds)
    stages = {line.stage for line in done.folder.rounds() if line.loss > 0}
    assert stages == {"fit", "tune"}
