"""What every method must keep; a new method is tested by standing in the table."""

from functools import cache

import pytest
import torch

from polyclinic.engine.local import LocalSites, assign
from polyclinic.engine.loop import RoundDone
from polyclinic.engine.run import runs_of
from polyclinic.engine.site_runner import SiteRunner
from polyclinic.engine.states import SiteState
from polyclinic.federation.message import Message
from polyclinic.federation.server import Server
from polyclinic.methods import METHODS
from polyclinic.networks.parts import everything, parameters, statistics
from tests.federations import Done, Federation, equal, perform

EVERY = pytest.mark.parametrize("method", METHODS)
QUICK = {name: ["method.mixing.first_passes=2"] for name in ("fedala", "fedicra", "fedlppa")}

WEAK = dict.fromkeys(("fedicra", "fedlppa"), ("point", "scribble", "block", "mask"))
SIDE = {"feddp": 64}  # smaller images leave attention a single place, and queries nothing to learn


def made_for(method: str) -> dict:
    """The kinds of labels and the size of images that the method is made for."""
    return {"kinds": WEAK.get(method, ("mask",)), "resolution": SIDE.get(method, 32)}


@pytest.fixture
def federation(federation, method):
    """Small federations that suit the method."""
    return lambda **settings: federation(**made_for(method), **settings)


@pytest.fixture(scope="module")
def plain_runs(tmp_path_factory):
    """Each method's run as it comes, done once for all tests that only look at it."""

    @cache
    def run(method: str) -> Done:
        small = Federation(tmp_path_factory.mktemp("plain"), **made_for(method))
        return small.run(method, *QUICK.get(method, []))

    return run


@pytest.fixture
def plain(plain_runs, method):
    """The method's run as it comes."""
    return plain_runs(method)


def final_states(done: Done) -> dict[str, dict[str, torch.Tensor]]:
    owners = [site.name for site in done.folder.about().sites]
    return {owner: done.tensors(owner) for owner in [*owners, "server"]}


def assert_same(first: Done, second: Done) -> None:
    states, others = final_states(first), final_states(second)
    assert states.keys() == others.keys()
    for owner, tensors in states.items():
        assert equal(tensors, others[owner]), f"{owner} differs"


@EVERY
def test_the_same_config_twice_gives_bit_equal_weights(federation, method, plain):
    assert_same(plain, federation().run(method, *QUICK.get(method, [])))


@EVERY
def test_scoring_in_the_middle_changes_nothing(federation, method):
    small = federation()
    scored = small.run(
        method, *QUICK.get(method, []), "evaluation.every=1", "evaluation.choose=last"
    )
    unscored = small.run(
        method, *QUICK.get(method, []), "evaluation.every=0", "evaluation.choose=last"
    )
    assert_same(scored, unscored)


@EVERY
def test_resuming_after_a_kill_is_bit_equal_to_an_uninterrupted_run(federation, method, plain):
    small = federation()
    # Before the first round, after each, after the last stages; for most two of them are enough.
    for killed_after in range(4) if method == "fedavg" else (1, 3):
        study = small.study(method, *QUICK.get(method, []), name=f"killed after {killed_after}")
        (run,) = runs_of(study, small.folder / "runs")
        for event in perform(run, small.data(study)):  # pragma: no branch
            if isinstance(event, RoundDone) and event.round == killed_after:
                break
        assert not run.folder.finished
        resumed = Done(run, list(perform(run, small.data(study))))
        assert_same(plain, resumed)
        assert [(r.round, r.stage, r.site) for r in resumed.folder.rounds()] == [
            (r.round, r.stage, r.site) for r in plain.folder.rounds()
        ]
        assert resumed.folder.scores() == plain.folder.scores()


@EVERY
@pytest.mark.parametrize("private_statistics", [False, True])
def test_messages_carry_exactly_what_is_shared_and_nothing_private(
    federation, method, private_statistics
):
    small = federation()
    kind = "private" if private_statistics else "shared"
    study = small.study(method, f"federation.statistics={kind}")
    (run,) = runs_of(study, small.folder / "runs")
    data = small.data(study)
    runner = SiteRunner(assign(run, data), torch.device("cpu"))
    sites = LocalSites(runner, data, run.folder)
    net = runner.net
    at_home = statistics(net) if private_statistics else frozenset()
    shared = METHODS[method]().shares(net) - at_home
    handed_out = METHODS[method]().server_made(net) - at_home
    assert not handed_out & shared
    server = Server(sites.trained, runner.first_weights(), study.federation, 0)
    chosen = runner.assignment.method
    chosen.start(server)
    for number, stages in enumerate([chosen.before(), chosen.each_round(), chosen.each_round()]):
        for stage in stages:
            messages = {info.name: stage.message(server, info) for info in sites.trained}
            replies = {
                site: reply.message
                for site, reply in sites.ask(stage, messages, number=number, since=number)
            }
            for message in messages.values():
                assert message.weights.names in (shared | handed_out, frozenset())
            for reply in replies.values():
                assert reply.weights.names in (shared, frozenset())
            for message in [*messages.values(), *replies.values()]:
                for private in everything(net) - shared:
                    assert not any(private in extra for extra in message.extras)
            if stage in chosen.each_round():
                assert all(reply.weights.names == shared for reply in replies.values())
            stage.combine(server, replies)
    states = {info.name: sites.states.load(info.name, 2) for info in sites.trained}
    assert all(isinstance(state, SiteState) for state in states.values())


@EVERY
def test_predicting_changes_neither_weights_nor_memory(federation, method, plain):
    small = federation()
    data = small.data(small.study(method))
    runner = SiteRunner(assign(plain.run, data), torch.device("cpu"))
    info = runner.assignment.sites[0]
    state = SiteState(plain.site(info.name), plain.memory(info.name))
    stage = runner.assignment.method.finalizing()
    site = runner._site(info, data[0], stage, Message(), state, 3)
    before = site.weights.copy()
    memory = {name: tensor.clone() for name, tensor in site.memory.items()}
    images = torch.rand(2, 1, 32, 32)
    site.net.eval()
    with torch.no_grad(), runner.assignment.method.in_use(site):
        first = runner.assignment.method.predict(site, images)
        second = runner.assignment.method.predict(site, images)
    assert torch.equal(first, second)
    assert first.shape == (2, 2, 32, 32)
    torch.testing.assert_close(first.sum(dim=1), torch.ones(2, 32, 32))
    assert torch.equal(site.weights.flat, before.flat)
    assert equal(dict(site.memory), memory)


@EVERY
def test_predictions_depend_on_what_the_method_says_and_on_nothing_else(federation, method, plain):
    """What a site discloses is taken from this."""
    small = federation()
    data = small.data(small.study(method))
    runner = SiteRunner(assign(plain.run, data), torch.device("cpu"))
    chosen, info = runner.assignment.method, runner.assignment.sites[0]
    site = runner.opened(info, data[0], SiteState(plain.site(info.name), {}))
    site.net.eval().requires_grad_(True)
    chosen.predict(site, torch.rand(2, 1, 64, 64)).square().sum().backward()
    heard = {name for name, each in site.net.named_parameters() if each.grad is not None}
    named = chosen.predicts_with(site.net)
    assert named & parameters(site.net) == heard
    assert not named & chosen.server_made(site.net)


@EVERY
@pytest.mark.parametrize("sites", [1, 2, 5])
def test_it_works_with_one_two_and_five_sites(federation, method, sites):
    done = federation(sites=sites, rounds=1).run(method, *QUICK.get(method, []))
    assert len(done.folder.about().sites) == sites
    assert {score.site for score in done.folder.scores("test")} == {
        site.name for site in done.folder.about().sites
    }


@EVERY
def test_fine_tuning_can_follow_it(federation, method, plain):
    then = '{name = "finetune", iterations = 2}'
    tuned = federation().run(method, *QUICK.get(method, []), then=then)
    assert equal(plain.tensors("server"), tuned.tensors("server"))
    for site in plain.folder.about().sites:
        assert not equal(plain.tensors(site.name), tuned.tensors(site.name))


@pytest.mark.parametrize("method", ["fedavg", "fedbn", "ditto", "fedala", "local"])
def test_fine_tuning_without_steps_changes_nothing(federation, method, plain):
    then = '{name = "finetune", iterations = 0}'
    idle = federation().run(method, *QUICK.get(method, []), then=then)
    for site in plain.folder.about().sites:
        assert equal(plain.tensors(site.name), idle.tensors(site.name))


def calibrated(method):
    """Settings and finishing steps with which a run of the method ends in a calibration."""
    return "" if method == "feddp" else '{name = "igc", iterations = 2}'


@EVERY
def test_calibration_can_follow_it(federation, method, plain):
    small = federation()
    if method == "feddp":
        plain, done = small.run(method, "method.calibrate=false"), plain
    else:
        done = small.run(method, *QUICK.get(method, []), then=calibrated(method))
    assert equal(
        plain.tensors("server"), done.tensors("server")
    )  # what was disclosed was given back
    for site in plain.folder.about().sites:
        assert not equal(plain.tensors(site.name), done.tensors(site.name))


@EVERY
def test_private_weights_leave_a_site_only_where_a_stage_says_that_it_lends(federation, method):
    small = federation()
    study = small.study(method, *QUICK.get(method, []), then=calibrated(method))
    (run,) = runs_of(study, small.folder / "runs")
    data = small.data(study)
    runner = SiteRunner(assign(run, data), torch.device("cpu"))
    sites = LocalSites(runner, data, run.folder)
    private = runner.everything - runner.shared
    chosen = runner.assignment.method
    server = Server(sites.trained, runner.first_weights(), study.federation, 0)
    chosen.start(server)
    after = runner.assignment.after
    walk = [(0, sites.trained, stage) for stage in chosen.before()]
    walk += [(1, sites.trained, stage) for stage in chosen.each_round()]
    walk += [(2, sites.scored, stage) for stage in after]
    disclosed = False
    for number, infos, stage in walk:
        messages = {info.name: stage.message(server, info) for info in infos}
        asked = sites.ask(stage, messages, number=number, since=number)
        replies = {site: reply.message for site, reply in asked}
        for site, message in messages.items():
            found = {extra for extra in message.extras if any(name in extra for name in private)}
            assert not found or disclosed
            assert not any(extra.startswith(f"disclosed/{site}/") for extra in message.extras)
        for reply in replies.values():
            assert not reply.weights.names & private
            found = {extra for extra in reply.extras if any(name in extra for name in private)}
            assert not found or stage.discloses
            assert all(extra.startswith("disclosed/") for extra in found)
        disclosed = disclosed or stage.discloses
        stage.combine(server, replies)
    assert [stage.name for stage in after if stage.discloses] == ["disclose"]
    assert not any(key.startswith("disclosed/") for key in server.memory)


@EVERY
def test_no_two_sites_share_a_tensor(federation, method):
    small = federation()
    study = small.study(method)
    (run,) = runs_of(study, small.folder / "runs")
    data = small.data(study)
    runner = SiteRunner(assign(run, data), torch.device("cpu"))
    sites = LocalSites(runner, data, run.folder)
    server = Server(sites.trained, runner.first_weights(), study.federation, 0)
    chosen = runner.assignment.method
    chosen.start(server)
    addresses = [runner.weights.flat.data_ptr()]
    for number, stages in enumerate([chosen.before(), chosen.each_round()]):
        for stage in stages:
            messages = {info.name: stage.message(server, info) for info in sites.trained}
            asked = sites.ask(stage, messages, number=number, since=number - 1)
            replies = {site: reply.message for site, reply in asked}
            addresses += [r.weights.flat.data_ptr() for r in replies.values() if len(r.weights)]
            stage.combine(server, replies)
            assert len(set(addresses)) == len(addresses)
            addresses = [runner.weights.flat.data_ptr()]
