"""Local, Centralized, FedAvg and fine-tuning: the limits that other methods are held against."""

from dataclasses import dataclass

import pytest
import torch
from torch import nn

from polyclinic.federation.method import Method
from polyclinic.methods import METHODS
from polyclinic.networks import NETWORKS
from polyclinic.networks.contract import Segmenter
from polyclinic.networks.parts import everything
from tests.federations import equal

LAST = "evaluation.choose=last"


@dataclass(frozen=True)
class SharesNothing(Method):
    """FedAvg whose shared selection is empty."""

    def shares(self, net):
        return frozenset()

    def combine(self, server, replies):
        """Nothing to average."""


class Plain(Segmenter):
    """Without norm layers, so that a batch's images do not meet, and in double precision."""

    name = "plain"
    divisor = 16

    def __init__(self, *, channels: int, classes: int, width: int = 2) -> None:
        super().__init__(
            channels=channels,
            classes=classes,
            encoder=Listed(nn.Conv2d(channels, width, 3, padding=1)),
            decoder=Listed(nn.Tanh(), first=True),
            head=nn.Conv2d(width, classes, 1),
        )
        self.double()

    def embed(self, images):
        return super().embed(images.double())


class Listed(nn.Module):
    def __init__(self, layer: nn.Module, first: bool = False) -> None:
        super().__init__()
        self.layer = layer
        self.first = first

    def forward(self, maps):
        return [self.layer(maps[0] if self.first else maps)]


@pytest.fixture
def more_methods(monkeypatch):
    monkeypatch.setitem(METHODS, "sharesnothing", SharesNothing)
    monkeypatch.setitem(NETWORKS, "plain", Plain)


def test_local_is_averaging_with_nothing_shared(federation, more_methods):
    small = federation()
    local, empty = small.run("local"), small.run("sharesnothing")
    for site in local.folder.about().sites:
        assert equal(local.site(site.name), empty.site(site.name))


def test_local_sends_nothing(federation):
    lines = federation().run("local").folder.rounds()
    assert all(line.down == 0 for line in lines)
    assert all(line.up == 8 * len(line.numbers) for line in lines)


@pytest.mark.parametrize("keep", ["true", "false"])
def test_fedavg_with_one_site_is_plain_training(federation, keep):
    small = federation(sites=1)
    settings = (f"training.keep_optimizer={keep}", LAST)
    (site,) = small.run("fedavg", *settings).folder.about().sites
    fedavg, local = small.run("fedavg", *settings), small.run("local", *settings)
    assert equal(fedavg.site(site.name), local.site(site.name))


def test_keeping_the_optimizer_matters(federation):
    small = federation(sites=1)
    kept = small.run("local", "training.keep_optimizer=true", LAST)
    new = small.run("local", "training.keep_optimizer=false", LAST)
    (site,) = kept.folder.about().sites
    assert not equal(kept.site(site.name), new.site(site.name))


def test_the_order_of_sites_changes_nothing(federation, monkeypatch):
    small = federation()
    forwards = small.run("fedavg", LAST)
    data = small.data
    monkeypatch.setattr(small, "data", lambda study: data(study)[::-1])
    backwards = small.run("fedavg", LAST)
    names = [[site.name for site in run.folder.about().sites] for run in (forwards, backwards)]
    assert names[0] == names[1][::-1]
    assert equal(forwards.tensors("server"), backwards.tensors("server"))


def test_all_sites_of_fedavg_end_with_the_servers_model(federation):
    done = federation().run("fedavg", LAST)
    server = done.tensors("server")
    for site in done.folder.about().sites:
        assert equal({f"weights/{n}": t for n, t in done.site(site.name).items()}, server)


@pytest.mark.parametrize("network", ["plain", "precise_unet"])
def test_one_full_batch_step_a_round_is_centralized_descent_without_norm_layers(
    federation, more_methods, network
):
    small = federation(rounds=3)
    settings = (
        f"network.name={network}",
        "network.width=2",
        "training.optimizer=sgd",
        "training.momentum=0.0",
        "training.weight_decay=0.0",
        "training.learning_rate=0.5",
        "training.batch=1000",
        "training.iterations=1",
        "training.loss=ce",
        "training.augmentation.flips=false",
        "training.augmentation.rotation=0",
        LAST,
    )
    federated = small.run("fedavg", *settings).tensors("server")
    central = small.run("centralized", "method.equal_compute=false", *settings).tensors("server")
    apart = max((federated[name] - central[name]).abs().max() for name in federated)
    moved = max(tensor.abs().max() for tensor in federated.values())
    assert moved > 0.01
    assert (apart < 1e-12) == (network == "plain")


def test_centralized_takes_as_many_steps_as_all_sites_together(federation):
    done = federation(sites=3).run("centralized")
    fits = [line for line in done.folder.rounds() if line.stage == "fit"]
    assert {line.site for line in fits} == {"pooled"}
    assert all(line.numbers["steps"] == 3 * 2 for line in fits)


def test_fine_tuning_one_site_does_not_touch_another(federation):
    two, three = federation(sites=2), federation(sites=3)
    then = '{name = "finetune", iterations = 2}'
    tuned = two.run("local", then=then)
    more = three.run("local", then=then)
    for site in tuned.folder.about().sites:
        assert equal(tuned.site(site.name), more.site(site.name))


@pytest.mark.parametrize("method", ["fedavg", "fedbn", "ditto", "local"])
def test_fine_tuning_leaves_the_server_alone_and_without_steps_the_sites_too(federation, method):
    small = federation(sites=2, rounds=1)
    plain = small.run(method, LAST)
    tuned, idle = (
        small.run(method, LAST, then=f'{{name = "finetune", iterations = {steps}}}')
        for steps in (1, 0)
    )
    assert equal(plain.tensors("server"), tuned.tensors("server"))
    for site in plain.folder.about().sites:
        assert not equal(plain.tensors(site.name), tuned.tensors(site.name))
        assert equal(plain.tensors(site.name), idle.tensors(site.name))


def test_weights_come_from_images_steps_or_are_equal(federation):
    small = federation()
    servers = [
        small.run("fedavg", f"federation.weighting={weighting}", LAST).tensors("server")
        for weighting in ("samples", "uniform", "steps")
    ]
    assert not equal(servers[0], servers[1])
    assert equal(servers[1], servers[2])  # every site takes the same number of steps here


def test_private_statistics_stay_at_the_site(federation):
    done = federation().run("fedavg", "federation.statistics=private", LAST)
    first, second = (done.site(site.name) for site in done.folder.about().sites)
    statistics = {name for name in first if "running" in name}
    assert statistics
    assert all(not torch.equal(first[name], second[name]) for name in statistics)
    assert all(torch.equal(first[name], second[name]) for name in first.keys() - statistics)
    assert not any("running" in name for name in done.tensors("server"))


def test_a_part_of_the_sites_takes_part(federation):
    done = federation(sites=5, rounds=3).run(
        "fedavg",
        "federation.participation=0.4",
        "evaluation.every=3",
        "evaluation.metrics=['dice']",
    )
    rounds = {}
    for line in done.folder.rounds():
        if line.stage == "fit":
            rounds.setdefault(line.round, set()).add(line.site)
    assert all(len(sites) == 2 for sites in rounds.values())
    assert len({frozenset(sites) for sites in rounds.values()}) > 1


def test_everything_is_shared_by_default():
    net = NETWORKS["unet"](channels=1, classes=2, width=2)
    assert METHODS["fedavg"]().shares(net) == everything(net)
    assert METHODS["fedavg"]().keeps(net) == frozenset()
