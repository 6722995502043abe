"""Several runs at once, in processes of their own."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from polyclinic.catalog import BUILT_IN
from polyclinic.config import load_study
from polyclinic.engine import grid as module
from polyclinic.engine.capacity import cores, more_like_this, own_memory
from polyclinic.engine.grid import FailedRuns, jobs_of, run_grid
from polyclinic.engine.loop import Notice, RoundDone
from polyclinic.engine.run import runs_of
from polyclinic.engine.tensors import load_tensors
from polyclinic.federation.site import TrainingFailed
from tests.federations import equal

STUDY = """
name = "many"
task = { name = "octa", resolution = 32 }
method = ["fedavg", "local"]
[data]
size = 0.1
only = ["fjord", "grove"]
[network]
name = "unet"
width = 2
[training]
batch = 2
iterations = 1
[federation]
rounds = 1
[evaluation]
pictures = false
metrics = ["dice"]
[engine]
threads = 1
"""


def silent(run, event):
    pass


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "many.toml"
    path.write_text(STUDY)
    return path


def load(file, *overrides):
    return load_study(file, overrides, BUILT_IN)


def run_all(study, root, watch=silent, **how):
    how = {"resume": False, "fresh": False, **how}
    return run_grid(study, root, root / "splits", watch=watch, **how)


def weights(runs):
    return {run.name: load_tensors(run.folder.weights_path("server"))[0] for run in runs}


def same(one, other):
    return one.keys() == other.keys() and all(equal(one[name], other[name]) for name in one)


def test_runs_of_two_processes_are_bit_equal_to_runs_one_after_the_other(file, tmp_path):
    seen = {}
    several = run_all(
        load(file, "sweep.training.batch=[1, 2]", "engine.jobs=2"),
        tmp_path / "several",
        watch=lambda run, event: seen.setdefault(run.name, []).append(event),
    )
    alone = run_all(load(file, "sweep.training.batch=[1, 2]", "engine.jobs=1"), tmp_path / "alone")
    assert same(weights(several), weights(alone))
    assert len(several) == 4
    assert several[0].folder.about().threads == 1
    assert several[3].folder.about().swept == {"training.batch": 2}
    rounds = [[e.round for e in events if isinstance(e, RoundDone)] for events in seen.values()]
    assert rounds == [[0, 1, 2]] * 4


@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_failing_run_is_listed_and_the_others_are_done(file, tmp_path, jobs):
    settings = ("training.iterations=3", "sweep.training.learning_rate=[1e30, 0.01]")
    study = load(file, *settings, f"engine.jobs={jobs}")
    said = []
    with pytest.raises(FailedRuns) as error:
        run_all(study, tmp_path, watch=lambda run, event: said.append((run.name, event)))
    failed = [f"{title} (learning_rate=1e+30) seed 0" for title in ("FedAvg", "Local")]
    lines = str(error.value).splitlines()
    assert lines[0] == "2 of 4 runs failed; --resume tries them again:"
    assert sorted(line.partition(": ")[0].strip() for line in lines[1:]) == failed
    assert all("the loss of site" in line for line in lines[1:])
    notices = [(name, event.text) for name, event in said if isinstance(event, Notice)]
    assert sorted(name for name, text in notices if text.startswith("failed: ")) == failed
    done = [run.folder.finished for run in runs_of(study, tmp_path)]
    assert done == [False, False, True, True]


def test_a_single_run_fails_with_its_own_error(file, tmp_path):
    settings = ("method=fedavg", "training.iterations=3", "training.learning_rate=1e30")
    with pytest.raises(TrainingFailed):
        run_all(load(file, *settings), tmp_path)


@pytest.mark.slow
def test_a_process_that_dies_costs_its_run_alone(file, tmp_path, monkeypatch):
    jobs = []

    class Killed(module.Job):
        def do(self, run, *, fresh):
            jobs.append(self)
            for event in super().do(run, fresh=fresh):
                if len(jobs) == 1:
                    self.process.kill()
                yield event

    monkeypatch.setattr(module, "Job", Killed)
    study = load(file, "seeds=[0, 1, 2]", "engine.jobs=2")
    with pytest.raises(FailedRuns, match="killed, perhaps for want of memory") as error:
        run_all(study, tmp_path)
    assert str(error.value).startswith("1 of 6 runs failed")
    assert len(run_all(study, tmp_path, resume=True)) == 6
    assert all(run.folder.finished for run in runs_of(study, tmp_path))


def test_other_processes_help_only_once_a_study_takes_long(file, tmp_path, monkeypatch):
    def refused(*given):
        raise AssertionError("a process was started")

    monkeypatch.setattr(module, "Job", refused)
    monkeypatch.setattr(module, "START", 1e9)
    assert len(run_all(load(file), tmp_path)) == 2


def test_as_many_runs_at_once_as_cores_and_memory_carry(file):
    study = load(file)
    assert jobs_of(study, runs=9, there=4) == 4
    assert jobs_of(study, runs=3, there=4) == 3
    assert jobs_of(load(file, "engine.workers=2"), runs=9, there=5) == 2
    assert jobs_of(load(file, "engine.workers=8"), runs=9, there=4) == 1
    assert jobs_of(load(file, "engine.jobs=7"), runs=9, there=4) == 7
    assert more_like_this(taken=300, free=1000) == 3
    assert more_like_this(taken=300, free=299) == 0
    assert more_like_this(taken=1) != 0
    assert 2**26 < own_memory() < 2**38
    assert 1 <= cores() <= os.cpu_count()


@pytest.mark.slow
def test_a_grid_killed_again_and_again_ends_as_if_nothing_had_happened(file, tmp_path):
    """Whoever kills does so at moments that a seed draws; some of the runs share rounds."""
    tuned = '{name = "fedavg", title = "tuned", then = {name = "finetune", iterations = 1}}'
    more = (f'method=[{{name = "fedavg"}}, {tuned}, {{name = "local"}}]', "engine.jobs=2")
    more += ("seeds=[0, 1]", "federation.rounds=4", "sweep.training.batch=[1, 2]")
    root = tmp_path / "runs"
    command = [sys.executable, "-m", "polyclinic", "run", str(file), "--runs", str(root)]
    command += [f"--set={setting}" for setting in more]
    draw = random.Random(0)
    runs = runs_of(load(file, *more), root)
    for attempt in range(6):
        before = progress(root)
        resumed = ["--resume"] if any(run.folder.exists for run in runs) else []
        process = subprocess.Popen([*command, *resumed], stderr=subprocess.PIPE, text=True)
        while process.poll() is None and progress(root) < before + draw.randrange(1, 6):
            time.sleep(draw.uniform(0, 0.05))
        children = helpers_of(process.pid)
        process.send_signal(draw.choice([signal.SIGKILL, signal.SIGTERM]))
        _, said = process.communicate()
        assert process.returncode < 0 or process.returncode == 0, (attempt, said)
        while any(Path(f"/proc/{child}").exists() for child in children):
            time.sleep(0.05)
    done = run_all(load(file, *more), root, resume=True)
    whole = run_all(load(file, *more, "engine.jobs=1"), tmp_path / "whole")
    assert same(weights(done), weights(whole))
    for run, other in zip(done, whole, strict=True):
        assert run.folder.scores() == other.folder.scores()


def progress(root):
    """How many rounds the runs tell of."""
    files = root.glob("many/*/seed-*/rounds.jsonl")
    return sum(file.read_text().count("\n") for file in files)


def helpers_of(pid):
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [child for task in tasks for child in task.read_text().split()]
