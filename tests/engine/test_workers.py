"""Several processes at the sites of one run."""

import subprocess
import sys
import textwrap
from threading import Event
from types import SimpleNamespace

import pytest

from polyclinic.catalog import BUILT_IN
from polyclinic.config import load_study
from polyclinic.engine import workers as module
from polyclinic.engine.local import LocalEngine
from polyclinic.engine.run import runs_of
from polyclinic.engine.tensors import load_tensors
from polyclinic.engine.workers import Workers
from polyclinic.runs import RunError
from tests.federations import equal, run_locally

STUDY = """
name = "one"
task = { name = "octa", resolution = 32 }
method = "ditto"
[data]
size = 0.1
only = ["fjord", "grove", "heath"]
[network]
name = "unet"
width = 2
[training]
batch = 2
iterations = 1
[federation]
rounds = 2
[evaluation]
metrics = ["dice"]
[engine]
threads = 1
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "one.toml"
    path.write_text(STUDY)
    return path


def finished(file, root, *overrides):
    study = load_study(file, overrides, BUILT_IN)
    (run,) = run_locally(study, root, watch=lambda *_: None)
    return run.folder


def contents(folder):
    """All that must not depend on the number of processes."""
    owners = ["server", *(site.name for site in folder.about().sites)]
    kept = [folder.embeddings_path(site.name).read_bytes() for site in folder.about().sites]
    return [load_tensors(folder.weights_path(owner))[0] for owner in owners], folder.scores(), kept


def same(one, other):
    (weights, scores, kept), (others, their_scores, their_kept) = contents(one), contents(other)
    return all(map(equal, weights, others)) and scores == their_scores and kept == their_kept


def test_sites_shared_by_two_processes_give_the_same_run(file, tmp_path):
    alone = finished(file, tmp_path / "alone", "engine.workers=1")
    assert same(finished(file, tmp_path / "two", "engine.workers=2"), alone)


@pytest.mark.slow
def test_help_that_comes_in_the_middle_of_a_run_changes_nothing(file, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "START", 0.0)
    helped = []

    class Noted(module.SiteHelper):
        def do(self, name, task):
            helped.append(name)
            return super().do(name, task)

    monkeypatch.setattr("polyclinic.engine.local.SiteHelper", Noted)
    monkeypatch.setattr("polyclinic.engine.capacity.cores", lambda: 2)
    long = "federation.rounds=60"
    alone = finished(file, tmp_path / "alone", "engine.workers=1", long)
    assert not helped
    assert same(finished(file, tmp_path / "helped", long), alone)
    assert "work" in helped
    assert len(helped) < 60 * 3, "the first rounds are done before help is there"


@pytest.mark.slow
def test_a_process_that_dies_stops_its_run_which_can_be_resumed(file, tmp_path, monkeypatch):
    class Killed(module.SiteHelper):
        def do(self, name, task):
            self.process.kill()
            return super().do(name, task)

    with monkeypatch.context() as patch:
        patch.setattr("polyclinic.engine.local.SiteHelper", Killed)
        with pytest.raises(RunError, match="killed, perhaps for want of memory"):
            finished(file, tmp_path / "killed", "engine.workers=2")
    study = load_study(file, ["engine.workers=1"], BUILT_IN)
    (run,) = run_locally(study, tmp_path / "killed", watch=lambda *_: None, resume=True)
    assert same(run.folder, finished(file, tmp_path / "alone", "engine.workers=1"))


def test_help_that_fails_to_come_is_done_without():
    class Failing:
        ready = False

        def wait(self):
            raise RunError("its process was killed")

        connection = SimpleNamespace(poll=lambda: True)

    workers = Workers()
    workers.helpers = [Failing()]
    assert list(workers.map("work", lambda number: number, [(1,), (2,)])) == [1, 2]
    assert workers.helpers == []
    workers = Workers(at_once=True)
    workers.helpers = [Failing()]
    with pytest.raises(RunError, match="was killed"):
        workers.map("work", lambda number: number, [(1,), (2,)])


@pytest.mark.slow
def test_scripts_are_not_executed_again(file, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(f"""
        import polyclinic as pc
        with open({str(tmp_path / "log")!r}, "a") as log:
            log.write("executed\\n")
        study = pc.Study.from_file({str(file)!r}, ["engine.workers=2"])
        pc.run(study, runs={str(tmp_path / "runs")!r})
        """)
    )
    subprocess.run([sys.executable, script], check=True, capture_output=True, cwd=tmp_path)
    assert (tmp_path / "log").read_text() == "executed\n"


def test_results_come_in_order_whoever_finishes_first():
    begun = Event()

    def here(number):
        begun.wait(60)
        return number

    class Elsewhere:
        ready = True

        def do(self, name, task):
            begun.set()
            return task[0]

    workers = Workers()
    workers.helpers = [Elsewhere()]
    assert list(workers.map("work", here, [(n,) for n in range(9)])) == list(range(9))


def test_the_error_of_a_task_is_raised_where_its_result_is_asked_for():
    def work(number):
        if number == 1:
            raise RunError("site 1 is broken")
        return number

    results = Workers().map("work", work, [(0,), (1,), (2,)])
    assert next(results) == 0
    with pytest.raises(RunError, match="site 1 is broken"):
        next(results)


@pytest.mark.parametrize(
    ("overrides", "processes", "threads"),
    [
        ((), 3, 1),  # no more than sites
        (("engine.threads=2",), 2, 2),
        (("engine.workers=1",), 1, 4),
        (("engine.workers=2",), 2, 2),
        (("method=metafed",), 1, 4),  # a ring
        (("method=centralized",), 1, 4),
        (("engine.jobs=4",), 1, 1),
    ],
)
def test_a_run_is_divided_among_the_cores_that_it_has(
    file, tmp_path, monkeypatch, overrides, processes, threads
):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr("polyclinic.engine.capacity.cores", lambda: 4)
    (run,) = runs_of(load_study(file, ["engine.threads=0", *overrides], BUILT_IN), tmp_path)
    alone, found = LocalEngine(None, max(1, run.study.engine.jobs)).alone(run)
    assert (found, alone.study.engine.threads) == (processes, threads)


def test_code_that_others_cannot_find_runs_in_one_process(federation, monkeypatch):
    monkeypatch.setattr("polyclinic.engine.capacity.cores", lambda: 4)
    small = federation(rounds=1)
    (run,) = runs_of(small.study("fedavg", "engine.threads=0"), small.folder / "runs")
    assert LocalEngine(None).alone(run)[1] == 1
