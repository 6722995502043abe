from dataclasses import dataclass

import pytest
import torch

from polyclinic.methods import METHODS
from polyclinic.methods.fedala import FedALA
from polyclinic.methods.learned_mixing import Mixing, mix_learned
from polyclinic.networks.parts import everything, parameters, part
from tests.federations import equal

LAST = "evaluation.choose=last"
QUICK = ("method.mixing.first_passes=2", LAST)


def test_without_learning_it_is_fedavg(federation):
    small = federation(rounds=3)
    fedala = small.run("fedala", "method.mixing.rate=0.0", LAST)
    fedavg = small.run("fedavg", LAST)
    assert equal(fedala.tensors("server"), fedavg.tensors("server"))
    for site in fedavg.folder.about().sites:
        assert equal(fedala.site(site.name), fedavg.site(site.name))


def test_learning_changes_where_training_starts(federation):
    small = federation(rounds=3)
    fedala, fedavg = small.run("fedala", *QUICK), small.run("fedavg", LAST)
    assert not equal(fedala.tensors("server"), fedavg.tensors("server"))


@pytest.mark.parametrize("blended", ["decoder", "head"])
def test_the_mixture_stays_between_zero_and_one_and_outlives_the_round(federation, blended):
    done = federation(rounds=3).run("fedala", f"method.blended={blended}", *QUICK)
    for site in done.folder.about().sites:
        mixture = {n: t for n, t in done.memory(site.name).items() if n.startswith("mixture/")}
        assert mixture
        assert all(t.min() >= 0 and t.max() <= 1 for t in mixture.values())
        assert any((t < 1).any() for t in mixture.values())
        heads = {n for n in mixture if n.startswith("mixture/head.")}
        assert (heads == mixture.keys()) == (blended == "head")


def test_the_first_learning_takes_several_passes_and_later_ones_one(federation):
    small = federation(sites=1, rounds=3)
    few = small.run("fedala", "method.mixing.first_passes=1", LAST)
    more = small.run("fedala", "method.mixing.first_passes=4", LAST)
    steps = [
        [line.images // 4 for line in done.folder.rounds() if line.stage == "fit"]
        for done in (few, more)
    ]
    assert steps[0][0] == steps[1][0] == 2
    assert steps[1][1] - 2 == 4 * (steps[0][1] - 2) > 0
    assert steps[0][2] == steps[1][2]


@pytest.mark.parametrize("method", ["fedala", "fedicra", "fedlppa"])
def test_steps_that_learn_the_mixture_are_not_counted_as_training(federation, method):
    small = federation(sites=2, kinds=("point", "scribble"))
    done = small.run(method, "federation.weighting=steps", *QUICK)
    last = [line for line in done.folder.rounds() if line.stage == "fit" and line.round == 2]
    assert [line.numbers["steps"] for line in last] == [2, 2]
    assert all(line.images > 2 * 4 for line in last)  # which it took all the same


@dataclass(frozen=True)
class KeepsItsOwn(FedALA):
    """FedALA whose mixture is 0 everywhere: the blended part stays the site's own."""

    whole: bool = False

    def keeps(self, net):
        names = everything(net) if self.whole else super().keeps(net)
        return names & parameters(net) if not self.whole else names

    def receive(self, site):
        own = site.take(self.keeps(site.net))
        site.load(site.message.weights)
        if not site.first:
            site.memory.update({f"mixture/{n}": torch.zeros_like(t) for n, t in own.items()})
            mix_learned(site, own, self.loss, Mixing(rate=0.0))


@pytest.fixture
def keeps_its_own(monkeypatch):
    monkeypatch.setitem(METHODS, "keepsitsown", KeepsItsOwn)


def test_a_mixture_of_zero_keeps_the_part_and_takes_the_rest(federation, keeps_its_own):
    done = federation(rounds=2).run("keepsitsown", "method.mixing.rate=0.0", LAST)
    first, second = (done.site(site.name) for site in done.folder.about().sites)
    for name in first:
        private = name.split(".")[0] in ("decoder", "head") and "running" not in name
        assert torch.equal(first[name], second[name]) != private


def test_a_mixture_of_zero_is_fedper_with_that_part(federation, keeps_its_own):
    """But for running statistics, which are never blended, and which training does not look at."""
    small = federation(rounds=3)
    done = small.run("keepsitsown", "method.mixing.rate=0.0", LAST)
    fedper = small.run("fedper", "method.private=decoder", LAST)
    for site in fedper.folder.about().sites:
        own, other = done.site(site.name), fedper.site(site.name)
        apart = {name for name in own if not torch.equal(own[name], other[name])}
        assert all(name.startswith("decoder.") and "running" in name for name in apart)


def test_a_mixture_of_zero_over_everything_is_local_training(federation, keeps_its_own):
    small = federation(rounds=3)
    done = small.run("keepsitsown", "method.whole=true", "method.mixing.rate=0.0", LAST)
    local = small.run("local", LAST)
    for site in local.folder.about().sites:
        assert equal(done.site(site.name), local.site(site.name))


def test_equal_weights_leave_the_mixture_alone(federation):
    small = federation(sites=1, rounds=3)  # what one site receives is what it sent
    done = small.run("fedala", *QUICK)
    (site,) = done.folder.about().sites
    mixture = [t for n, t in done.memory(site.name).items() if n.startswith("mixture/")]
    assert all(t.eq(1).all() for t in mixture)


def test_the_blended_part_is_decoder_and_head():
    from polyclinic.networks import NETWORKS

    net = NETWORKS["unet"](channels=1, classes=2, width=2)
    kept = FedALA().keeps(net)
    assert kept == (part(net, "decoder") | part(net, "head")) & parameters(net)


def test_its_diagnostics_tell_what_became_of_the_mixture(federation):
    done = federation(sites=2, rounds=2).run("fedala", LAST)
    table = [each for each in done.folder.tables() if each.name == "diagnostics"][-1]
    for site, row in zip(done.folder.about().sites, table.values, strict=True):
        told = dict(zip(table.columns, row, strict=True))
        memory = done.memory(site.name)
        mixture = [t.flatten() for n, t in memory.items() if n.startswith("mixture/")]
        assert told["W mean"] == pytest.approx(float(torch.cat(mixture).mean()))
        assert 0 < told["W mean"] <= 1
