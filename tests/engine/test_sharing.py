"""Runs that begin alike: what they have in common is trained once, and no bit changes by that."""

import errno
import os
import random
from collections import deque
from contextlib import suppress
from threading import Thread

import pytest

from polyclinic.api.progress import shown_plan
from polyclinic.config import load_study
from polyclinic.engine import sharing
from polyclinic.engine.grid import Grid, run_grid
from polyclinic.engine.loop import RoundDone
from polyclinic.engine.planning import Plan, Planned
from polyclinic.engine.run import runs_of
from polyclinic.engine.sharing import Sharing
from polyclinic.federation.method import Method
from polyclinic.methods.fedbn import FedBN
from polyclinic.runs import RunError
from tests.federations import NEEDS, Done, equal, run_locally
from tests.small_unet import TABLES

STUDY = """
name = "alike"
task = { name = "octa", resolution = 32 }
METHODS
[data]
size = 0.1
only = ["fjord", "grove"]
[network]
name = "small_unet"
[training]
batch = 2
iterations = 1
[federation]
rounds = 2
[evaluation]
every = 1
pictures = false
metrics = ["dice"]
[engine]
threads = 1
"""
TUNED = '{ name = "NAME", title = "Tuned", then = { name = "finetune", iterations = 1 } }'
LONGER = ("training.schedule=constant", "sweep.federation.rounds=[2, 3]")


class Stopped(BaseException):
    """As Ctrl-C: what no part of the program waits for."""


@pytest.fixture
def study(tmp_path):
    """A method, and a second entry of it that begins alike."""

    def make(name="fedavg", *overrides, second=TUNED):
        methods = f'method = [{{ name = "{name}" }}, {second.replace("NAME", name)}]'
        file = tmp_path / "alike.toml"
        file.write_text(STUDY.replace("METHODS", methods))
        return load_study(file, [*NEEDS.get(name, ()), *overrides], TABLES)

    return make


def run_all(study, root, watch=lambda *_: None, **how):
    how = {"resume": False, "fresh": False, **how}
    return run_grid(study, root, root / "splits", watch=watch, **how)


def rounds_done(study, root, **how):
    """The rounds that were done, by run."""
    done = {run.name: [] for run in runs_of(study, root)}

    def watch(run, event):
        if isinstance(event, RoundDone):
            done[run.name].append(event.round)

    run_all(study, root, watch, **how)
    return list(done.values())


def same(study, root, other):
    """Whether both folders hold the same runs but for times, and neither anything else."""
    for run, own in zip(runs_of(study, root), runs_of(study, other), strict=True):
        owners = ("server", *(site.name for site in own.folder.about().sites))
        one, two = Done(run, []), Done(own, [])
        if not all(equal(one.tensors(owner), two.tensors(owner)) for owner in owners):
            return False
        if run.folder.end().chosen_round != own.folder.end().chosen_round:
            return False
        if run.folder.scores(model=None) != own.folder.scores(model=None):
            return False
        if timeless(run.folder.rounds()) != timeless(own.folder.rounds()):
            return False
        if repr(run.folder.tables()) != repr(own.folder.tables()):
            return False
        assert not (run.folder.path / "checkpoint").exists()
        assert not list(run.folder.path.parent.glob("new-*"))
    return True


def timeless(lines):
    return [line.model_copy(update={"seconds": 0.0}).model_dump_json() for line in lines]


def run_both(study, tmp_path, **how):
    """The study with sharing, compared with runs of their own; the rounds that were done."""
    done = rounds_done(study, tmp_path / "shared", **how)
    run_locally(study, tmp_path / "own", watch=lambda *_: None)
    assert same(study, tmp_path / "shared", tmp_path / "own")
    return done


def spoilt(self, server, replies):
    Method.combine(self, server, replies)
    if server.round > 1:
        server.weights.flat.zero_()


def test_a_grid_stopped_again_and_again_shares_rounds_and_ends_as_if_neither_had_happened(
    study, tmp_path, monkeypatch
):
    """It stops at any event, and amid the taking over of rounds, whose first is the best one."""
    monkeypatch.setattr(FedBN, "combine", spoilt)
    grid = study("fedbn", *LONGER, "training.iterations=2")
    link, draw, stops, root = sharing._link, random.Random(1), [], tmp_path / "shared"

    def stop(*_):
        if draw.random() < 0.08:
            stops.append(True)
            raise Stopped

    def linked(file, to):
        stop()
        link(file, to)

    monkeypatch.setattr(sharing, "_link", linked)
    done = False
    while not done:
        with suppress(Stopped):
            run_all(grid, root, stop, resume=any(run.folder.exists for run in runs_of(grid, root)))
            done = True
    assert len(stops) > 3
    run_locally(grid, tmp_path / "own", watch=lambda *_: None)
    assert same(grid, root, tmp_path / "own")
    first, tuned, longer, _ = (run.folder for run in runs_of(grid, root))
    assert first.end().chosen_round == longer.end().chosen_round == 1
    assert [each.about().shared_rounds for each in (first, tuned, longer)] == [0, 2, 2]
    assert longer.about().shared_with == "FedBN (rounds=2) seed 0"
    assert longer.rounds()[:4] == first.rounds()[:4]  # times too


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["fedavg", "ditto", "apfl", "fedap", "fedicra", "fedlppa", "feddg", "scaffold"]
)
def test_methods_with_all_kinds_of_state_share_their_rounds(study, tmp_path, name):
    grid = study(name, *LONGER, "training.keep_optimizer=true", "evaluation.scores=both")
    assert run_both(grid, tmp_path, fresh=True) == [[0, 1, 2, 3], [3], [3, 4], [4]]


@pytest.mark.slow
@pytest.mark.parametrize("own", [("fedsoup",), ("lg-fedavg", "method.warm_start=0.5")])
def test_a_method_that_counts_rounds_is_not_shared_with_a_longer_run(study, tmp_path, own):
    assert run_both(study(*own, *LONGER), tmp_path) == [[0, 1, 2, 3], [3], [0, 1, 2, 3, 4], [4]]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "late"),
    [
        ("feddp", "calibrate = false"),
        ("feddp", "calibration = { iterations = 1, weight = 0 }"),
        ("fedbabu", "tuning = { iterations = 1 }"),
    ],
)
def test_settings_of_what_follows_the_rounds_do_not_part_runs(study, tmp_path, name, late):
    grid = study(name, second=f'{{ name = "NAME", title = "Second", {late} }}')
    assert run_both(grid, tmp_path) == [[0, 1, 2, 3], [3]]


@pytest.mark.slow
def test_runs_of_two_processes_wait_for_each_other_and_share(study, tmp_path):
    grid = study("fedbn", *LONGER, "engine.jobs=2", "seeds=[0, 1]")
    assert run_both(grid, tmp_path) == 2 * [[0, 1, 2, 3], [3], [3, 4], [4]]


def test_a_run_waits_for_the_one_that_it_goes_on_from(study, tmp_path):
    runs, order = runs_of(study(), tmp_path), []
    grid = Grid(None, Sharing(runs), deque(runs), 1, False, lambda *_: None, False)
    other = Thread(target=lambda: order.append(grid.next(here=True).choice.title), daemon=True)

    def work(run, *, fresh):
        other.start()
        other.join(0.2)  # long enough for one that would not wait
        order.append("done")
        return iter(())

    grid.attempt(grid.next(here=True), work)
    other.join()
    assert order == ["done", "Tuned"]


def test_a_run_trains_by_itself_where_the_other_one_fails(study, tmp_path, monkeypatch):
    runs = runs_of(study(), tmp_path)
    grid = Grid(None, Sharing(runs), deque(runs), 1, False, lambda *_: None, False)

    def work(run, *, fresh):
        raise RunError("no disk")

    grid.attempt(grid.next(here=True), work)
    assert grid.failed == [(runs[0], "no disk")]
    assert grid.next(here=True) is runs[1]
    assert not grid.sharing.start(runs[1])


@pytest.mark.parametrize(
    ("settings", "shared"),
    [
        ((), [0, 2]),
        (("sweep.federation.rounds=[2, 3]",), [0, 2, 0, 3]),
        (LONGER, [0, 2, 2, 3]),
        ((*LONGER, "evaluation.every=2"), [0, 2, 2, 3]),
        ((*LONGER, "evaluation.every=0"), [0, 2, 0, 3]),  # the longer one has no score of round 2
        (("sweep.training.batch=[1, 2]",), [0, 2, 0, 2]),
        (("seeds=[0, 1]",), [0, 2, 0, 2]),
        (('sweep.evaluation.choose=["best", "last"]',), [0, 2, 2, 2]),
    ],
)
def test_only_what_the_same_settings_decide_is_shared(study, tmp_path, settings, shared):
    runs = runs_of(study("fedavg", *settings), tmp_path)
    assert [Sharing(runs).rounds(run, fresh=False) for run in runs] == shared


def test_where_a_disk_knows_no_links_states_are_copied(tmp_path, monkeypatch):
    def refuse(file, to):
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    (tmp_path / "one").write_text("state")
    sharing._link(tmp_path / "one", tmp_path / "other")
    assert (tmp_path / "other").read_text() == "state"


def test_a_plan_says_which_rounds_are_shared(study, tmp_path):
    first, second = runs_of(study(), tmp_path)
    plans = Planned(first, 0, 20.0), Planned(second, 0, 10.0, 2, first.name)
    lines = list(shown_plan(Plan(plans, 1, "as guessed")))
    assert lines[1].endswith("to do after FedAvg seed 0, round 2  about 0:10")
    assert lines[2].startswith("runs: 2, 0 done, 2 to do; 2 of their 4 rounds are shared; 1 at")
