from dataclasses import dataclass

import pytest
import torch

from polyclinic.config import FederationSettings
from polyclinic.engine.checkpoint import Checkpoint
from polyclinic.engine.local import assign
from polyclinic.engine.loop import RoundDone
from polyclinic.engine.run import runs_of
from polyclinic.engine.site_runner import SiteRunner
from polyclinic.federation.message import Message
from polyclinic.federation.method import Stage
from polyclinic.federation.server import Server
from polyclinic.federation.weights import Weights
from polyclinic.methods import METHODS
from polyclinic.methods.fedavg import FedAvg
from polyclinic.methods.fedper import FedPer
from polyclinic.methods.lg_fedavg import LGFedAvg
from polyclinic.networks import NETWORKS
from polyclinic.networks.parts import everything, part, statistics
from polyclinic.runs import SiteInfo
from tests.federations import NETS, equal, perform

LAST = "evaluation.choose=last"
COLD = ("method.warm_start=0", LAST)


@dataclass(frozen=True)
class AllShared(LGFedAvg):
    """LG-FedAvg whose representation is empty."""

    def shares(self, net):
        return everything(net)


@dataclass(frozen=True)
class NoneShared(LGFedAvg):
    """LG-FedAvg whose representation is the whole network."""

    def shares(self, net):
        return frozenset()


@dataclass(frozen=True)
class Warm(FedAvg):
    """FedAvg whose rounds are called as those of the warm start, and so draw the same batches."""

    def each_round(self):
        return (Stage("warm", self.message, self.visit, self.combine),)


@dataclass(frozen=True)
class Leaking(LGFedAvg):
    """Its warm start does not say that it shares more than later."""

    def warm_round(self):
        def visit(site):
            self.receive(site)
            return Message(site.take(everything(site.net)))

        return (Stage("warm", self.message, visit, self.combine),)


@pytest.fixture
def limits(monkeypatch):
    for limit in (AllShared, NoneShared, Leaking, Warm):
        monkeypatch.setitem(METHODS, limit.__name__.lower(), limit)


@NETS
def test_with_all_layers_shared_it_is_fedavg(federation, limits, network):
    small = federation(**{"network.name": network})
    whole = small.run("allshared", *COLD)
    fedavg = small.run("fedavg", LAST)
    for owner in ["server", *(site.name for site in whole.folder.about().sites)]:
        assert equal(whole.tensors(owner), fedavg.tensors(owner))


@NETS
def test_with_no_layer_shared_it_is_local_training(federation, limits, network):
    small = federation(**{"network.name": network})
    none, local = small.run("noneshared", *COLD), small.run("local", LAST)
    for site in local.folder.about().sites:
        assert equal(none.site(site.name), local.site(site.name))


def test_a_warm_start_of_all_rounds_is_fedavg(federation, limits):
    small = federation()
    warm, fedavg = small.run("lg-fedavg", "method.warm_start=1", LAST), small.run("warm", LAST)
    for owner in ["server", *(site.name for site in warm.folder.about().sites)]:
        assert equal(warm.tensors(owner), fedavg.tensors(owner))


def test_it_shares_what_fedper_with_that_cut_keeps_and_the_other_way_round():
    for name in ("unet", "resnet_fpn", "pvt_fpn"):
        net = NETWORKS[name](channels=1, classes=2)
        ours, theirs = LGFedAvg().shares(net), FedPer("decoder").shares(net)
        assert not ours & theirs
        assert ours | theirs == everything(net)


def test_fewer_layers_can_be_shared():
    net = NETWORKS["unet"](channels=1, classes=2)
    assert LGFedAvg(shared_layers=1).shares(net) == part(net, "head")
    more = LGFedAvg(shared_layers=3).shares(net)
    assert part(net, "head") < more < LGFedAvg().shares(net)


@pytest.mark.parametrize("warm_start", [0, 0.5])
def test_after_the_warm_start_no_message_has_an_encoder(federation, warm_start):
    small = federation(rounds=4)
    done = small.run("lg-fedavg", f"method.warm_start={warm_start}", LAST)
    with_encoder = {line.round for line in done.folder.rounds() if "encoder" in line.parts}
    assert with_encoder == ({1, 2} if warm_start else set())
    names = {line.round: line.stage for line in done.folder.rounds() if line.round in (1, 2, 3, 4)}
    expected = ["warm", "warm", "fit", "fit"] if warm_start else ["fit"] * 4
    assert [names[number] for number in (1, 2, 3, 4)] == expected
    down = {line.round: line.down for line in done.folder.rounds() if line.round in (3, 4)}
    # The first message after the warm start still has the common encoder to go on from.
    assert (down[3] > down[4]) == bool(warm_start)


def test_every_site_goes_on_from_the_averaged_encoder(federation, limits):
    """After two rounds of FedAvg and one more, each encoder is what that model is trained to."""
    small = federation(rounds=3)
    done = small.run("lg-fedavg", "method.warm_start=0.67", LAST)
    study = small.study("warm", LAST, name="interrupted")
    (run,) = runs_of(study, small.folder / "runs")
    data = small.data(study)
    for event in perform(run, data):  # pragma: no branch
        if isinstance(event, RoundDone) and event.round == 2:
            break
    runner = SiteRunner(assign(run, data), torch.device("cpu"))
    server = Server(runner.assignment.sites, runner.first_weights(), study.federation, 0)
    Checkpoint(run.folder.path / "checkpoint").load(server)
    (stage,) = FedAvg().each_round()
    for info, cases in zip(runner.assignment.sites, data, strict=True):
        site = runner._site(info, cases, stage, Message(server.weights), None, 3)
        stage.work(site)
        own = done.site(info.name)
        for name in part(site.net, "encoder"):
            assert torch.equal(own[name], site.weights[name])


def test_encoders_differ_in_the_end_and_what_is_shared_does_not(federation):
    done = federation(rounds=3).run("lg-fedavg", LAST)
    sites = [done.site(site.name) for site in done.folder.about().sites]
    shared = {name.removeprefix("weights/") for name in done.tensors("server")}
    assert shared == {name for name in sites[0] if not name.startswith("encoder.")}
    for name in sites[0]:
        same = all(torch.equal(sites[0][name], site[name]) for site in sites[1:])
        assert same == (name in shared)


def test_the_best_round_is_none_of_the_warm_start(federation):
    small = federation(rounds=4)
    done = small.run("lg-fedavg", "method.warm_start=0.75")
    best = {event.round: event.validation for event in done.events if isinstance(event, RoundDone)}
    assert all(best[number] is not None for number in (1, 2, 3, 4))
    assert done.folder.end().chosen_round == 4


def test_private_statistics_stay_at_home_in_the_warm_start_too(federation):
    small = federation()
    study = small.study("lg-fedavg", "federation.statistics=private")
    (run,) = runs_of(study, small.folder / "runs")
    runner = SiteRunner(assign(run, small.data(study)), torch.device("cpu"))
    (warm,) = runner.assignment.stages_in(1)
    assert runner.shared_in(warm) == runner.everything - statistics(runner.net)
    assert runner.first_weights(warm).names == runner.shared_in(warm)


def test_a_stage_that_does_not_declare_what_it_sends_is_stopped(federation, limits):
    with pytest.raises(AssertionError, match=r"stage warm sends what it does not share: .*encoder"):
        federation().run("leaking", LAST)


INFOS = tuple(SiteInfo(name, index, "mask", 5) for index, name in enumerate("abc"))


def reply(value, *names):
    weights = Weights.pack({name: torch.full((2,), float(value)) for name in names})
    return Message(weights, numbers={"images": 5.0, "steps": 1.0})


def test_a_site_that_was_away_when_the_warm_start_ended_gets_the_common_start_later():
    method = LGFedAvg()
    first = reply(0, "encoder.a", "head.a").weights
    server = Server(INFOS, first, FederationSettings(), 0)
    method.combine(server, {name: reply(3, "encoder.a", "head.a") for name in "abc"})
    assert not server.memory
    method.combine(server, {"a": reply(4, "head.a"), "b": reply(6, "head.a")})
    assert server.weights.names == {"head.a"}
    assert [method.message(server, info).weights.names for info in INFOS] == [
        {"head.a"},
        {"head.a"},
        {"head.a", "encoder.a"},
    ]
    late = method.message(server, INFOS[2]).weights
    assert late["encoder.a"].tolist() == [3.0, 3.0]
    assert late["head.a"].tolist() == [5.0, 5.0]
    method.combine(server, {"a": reply(7, "head.a")})
    assert method.message(server, INFOS[2]).weights.names == {"head.a", "encoder.a"}
    method.combine(server, {"c": reply(8, "head.a")})
    assert not server.memory
    assert method.message(server, INFOS[2]).weights.names == {"head.a"}


def test_it_works_where_only_some_sites_take_part_in_a_round(federation):
    done = federation(sites=5, rounds=4).run(
        "lg-fedavg", "method.warm_start=0.5", "federation.participation=0.4", LAST
    )
    assert len(done.folder.scores("test")) > 0


def test_weak_labels_are_learned_from(federation):
    kinds = ("point", "scribble", "block")
    done = federation(kinds=kinds).run("lg-fedavg", LAST)
    assert {site.kind for site in done.folder.about().sites} == set(kinds)
    assert {line.stage for line in done.folder.rounds() if line.loss > 0} == {"warm", "fit"}
