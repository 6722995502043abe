"""Finished runs of other studies that are the same are not done again."""

import json

import pytest

from polyclinic.api.progress import shown_plan
from polyclinic.api.running import do_runs
from polyclinic.engine.grid import run_grid
from polyclinic.engine.loop import Reused, RoundDone
from polyclinic.engine.planning import plan_of
from polyclinic.engine.run import runs_of
from polyclinic.report import write_report
from polyclinic.runs import RunError
from polyclinic.runs.sums import changed
from tests.federations import Done, equal


@pytest.fixture
def study(federation):
    """A small study of these methods."""
    small = federation(rounds=1)
    return lambda name, methods, *more: small.study("fedavg", f"method={methods}", *more, name=name)


@pytest.fixture
def done(study, tmp_path):
    """The folder of a study of one finished run."""
    run_all(study("earlier", '["fedavg"]'), tmp_path)
    return tmp_path / "earlier"


def run_all(study, root, *reuse, resume=False):
    """Do a study; the names of the runs that trained, and of those that were taken over."""
    trained, taken = set(), {}

    def watch(run, event):
        if isinstance(event, RoundDone):
            trained.add(run.name)
        elif isinstance(event, Reused):
            taken[run.name] = event.other

    run_grid(study, root, root / "splits", resume=resume, fresh=False, reuse=reuse, watch=watch)
    return trained, taken


def test_a_run_that_is_the_same_is_taken_over_and_the_others_train(study, done, tmp_path):
    later = study("later", '[{ name = "fedavg", title = "Mean" }, "fedprox"]')
    told = run_all(later, tmp_path, done)
    assert told == ({"FedProx seed 0"}, {"Mean seed 0": "earlier/fedavg/seed-0"})
    (run, _), (first,) = runs_of(later, tmp_path), runs_of(study("earlier", '["fedavg"]'), tmp_path)
    assert equal(Done(run, []).tensors("server"), Done(first, []).tensors("server"))
    assert run.folder.scores() == first.folder.scores()
    about = run.folder.about()
    assert (about.method, about.shared_rounds) == ("Mean", 1)
    assert about.shared_with == "earlier/fedavg/seed-0"
    assert run.folder.settings()["name"] == "later"
    for name in ("about.json", "study.toml", "scores.csv", "finished.json"):
        assert not changed(run.folder.path / name)
    assert run_all(later, tmp_path, resume=True) == (set(), {})
    assert not list(tmp_path.glob("later/*/new-*"))
    assert "Mean" in write_report([tmp_path / "later"], tmp_path / "later").read_text()


@pytest.mark.parametrize("other", ["training.batch=1", "seeds=[1]", "federation.rounds=2"])
def test_what_has_other_settings_is_trained(study, done, tmp_path, other):
    _, taken = run_all(study("later", '["fedavg"]', other), tmp_path, done)
    assert taken == {}


@pytest.mark.parametrize("part", [("versions", "torch", "1.0"), ("start", "sha256-1")])
def test_what_another_version_or_other_weights_began_is_trained(study, done, tmp_path, part):
    file = done / "fedavg" / "seed-0" / "about.json"
    about = json.loads(file.read_text())
    *path, last, value = part
    (about[path[0]] if path else about)[last] = value
    file.write_text(json.dumps(about))
    assert run_all(study("later", '["fedavg"]'), tmp_path, done)[1] == {}


def test_what_has_not_finished_or_is_there_already_is_left_alone(study, done, tmp_path):
    later = study("later", '["fedavg"]')
    (done / "fedavg" / "seed-0" / "finished.json").rename(tmp_path / "finished.json")
    assert run_all(later, tmp_path, done) == ({"FedAvg seed 0"}, {})
    (tmp_path / "finished.json").rename(done / "fedavg" / "seed-0" / "finished.json")
    assert run_all(later, tmp_path, done, resume=True) == (set(), {})


def test_people_are_told_once_of_each_run_that_is_taken_over(study, done, tmp_path, capsys):
    later = study("later", '["fedavg", "fedprox"]')
    do_runs(later, tmp_path, resume=False, fresh=False, reuse=[done])
    told = "".join(capsys.readouterr())
    lines = [line for line in told.splitlines() if "FedAvg" in line]
    assert lines == ["FedAvg seed 0  is done: the same as earlier/fedavg/seed-0"]


def test_a_plan_says_what_is_taken_over(study, done, tmp_path):
    later = study("later", '["fedavg", "fedprox"]')
    plan = plan_of(later, tmp_path, tmp_path / "splits", fresh=False, reuse=[done])
    assert [each.state for each in plan.runs] == ["done as earlier/fedavg/seed-0", "to do"]
    assert plan.runs[0].seconds == 0 < plan.runs[1].seconds
    assert "1 done, 1 to do" in list(shown_plan(plan))[-1]
    assert not (tmp_path / "later").exists()
    whole = plan_of(
        study("again", '["fedavg"]'), tmp_path, tmp_path / "s", fresh=False, reuse=[done]
    )
    assert whole.left == []


def test_folders_without_runs_are_named_before_anything_is_trained(study, tmp_path):
    with pytest.raises(RunError, match="nowhere is not a folder"):
        run_all(study("later", '["fedavg"]'), tmp_path, tmp_path / "nowhere")
    assert not (tmp_path / "later").exists()
    with pytest.raises(ValueError, match="give one of them"):
        do_runs(study("later", '["fedavg"]'), tmp_path, resume=False, fresh=True, reuse=["x"])
