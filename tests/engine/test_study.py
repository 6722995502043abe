import errno
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from polyclinic.catalog import BUILT_IN
from polyclinic.config import load_study
from polyclinic.engine.loop import RoundDone
from polyclinic.engine.run import runs_of
from polyclinic.engine.sites import Scored
from polyclinic.engine.tensors import load_tensors
from polyclinic.evaluation import METRICS, Metric
from polyclinic.evaluation.metrics import APART
from polyclinic.federation.site import TrainingFailed
from polyclinic.methods import METHODS
from polyclinic.methods.fedavg import FedAvg
from polyclinic.report import write_report
from polyclinic.runs import RoundLine, RunError
from tests.federations import Done, equal, perform, run_locally

SMALL = """
name = "small"
task = { name = "octa", resolution = 32 }
[data]
size = 0.1
[network]
name = "unet"
width = 2
[[method]]
name = "fedavg"
[[method]]
name = "local"
[training]
batch = 4
iterations = 1
[federation]
rounds = 2
[evaluation]
every = 1
pictures = false
[engine]
threads = 1
"""
TWO_SITES = SMALL.replace("size = 0.1", 'size = 0.1\nonly = ["fjord", "grove"]')


@pytest.fixture
def small(tmp_path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(TWO_SITES)
    return path


def silent(run, event):
    pass


def test_a_study_runs_every_method_and_leaves_complete_folders(small, tmp_path):
    events = []
    study = load_study(small, ["seeds=[0, 1]", "evaluation.pictures=true"], BUILT_IN)
    runs = run_locally(study, tmp_path / "runs", watch=lambda run, event: events.append(event))
    assert [(run.choice.name, run.seed) for run in runs] == [
        ("fedavg", 0),
        ("local", 0),
        ("fedavg", 1),
        ("local", 1),
    ]
    for run in runs:
        folder = run.folder
        assert folder.finished
        about = folder.about()
        assert len(about.sites) == 2
        assert {score.metric for score in folder.scores("test")} == set(study.evaluation.metrics)
        assert {score.round for score in folder.scores("val")} == {1, 2}
        assert all(len(folder.pictures(site.name)) == 6 for site in about.sites)  # ranks and sizes
        assert all(folder.weights_path(site.name).exists() for site in about.sites)
        assert {line.stage for line in folder.rounds()} == {"fit", "finalize"}
        assert not (folder.path / "checkpoint").exists()
    kinds = {type(event) for event in events}
    assert kinds >= {RoundLine, Scored, RoundDone}


def test_a_metric_added_as_one_entry_is_scored_and_shown_like_any_other(
    small, tmp_path, monkeypatch
):
    entry = Metric(
        lambda pair: float(pair.predicted.sum()), "Size", "pixels found", "higher", "px", APART
    )
    monkeypatch.setitem(METRICS, "size", entry)
    study = load_study(small, ['evaluation.metrics=["size"]', "federation.rounds=1"], BUILT_IN)
    runs = run_locally(study, tmp_path / "runs", watch=silent)
    scores = runs[0].folder.scores("test")
    assert {score.metric for score in scores} == {"size"}
    assert any(score.value > 1 for score in scores)
    page = write_report([run.folder.path for run in runs], tmp_path / "report").read_text()
    assert "Size" in page
    assert "pixels found" in page


def test_an_earlier_run_is_never_overwritten_unasked(small, tmp_path):
    study = load_study(small, [], BUILT_IN)
    run_locally(study, tmp_path / "runs", watch=silent)
    with pytest.raises(RunError, match=r"already holds a run(.|\n)*already holds(.|\n)*--resume"):
        run_locally(study, tmp_path / "runs", watch=silent)
    before = runs_of(study, tmp_path / "runs")[0].folder.about().started
    run_locally(study, tmp_path / "runs", resume=True, watch=silent)
    assert runs_of(study, tmp_path / "runs")[0].folder.about().started == before
    run_locally(study, tmp_path / "runs", fresh=True, watch=silent)
    assert runs_of(study, tmp_path / "runs")[0].folder.about().started != before


def test_resuming_is_refused_with_other_settings_but_not_with_more_workers(small, tmp_path):
    run_locally(load_study(small, [], BUILT_IN), tmp_path / "runs", watch=silent)
    changed = load_study(small, ["training.batch=2"], BUILT_IN)
    told = r"other settings:\n  training.batch was \d+, is 2\n(.|\n)*--fresh"
    with pytest.raises(RunError, match=told):
        run_locally(changed, tmp_path / "runs", resume=True, watch=silent)
    faster = load_study(small, ["engine.workers=2"], BUILT_IN)  # which changes no result
    run_locally(faster, tmp_path / "runs", resume=True, watch=silent)


def test_the_best_round_needs_validation_cases(small, tmp_path):
    sites = tmp_path / "sites" / "one"
    import numpy as np
    from PIL import Image

    for part in ("images", "masks"):
        (sites / part).mkdir(parents=True)
    for number in range(4):
        pixels = np.random.default_rng(number).integers(0, 255, (32, 32), dtype=np.uint8)
        Image.fromarray(pixels).save(sites / "images" / f"{number}.png")
        Image.fromarray((pixels > 128).astype(np.uint8)).save(sites / "masks" / f"{number}.png")
    small.write_text(SMALL.replace("size = 0.1", 'source = "sites"\nsplit = [0.5, 0.0, 0.5]'))
    study = load_study(small, [], BUILT_IN)
    with pytest.raises(RunError, match="needs validation cases"):
        run_locally(study, tmp_path / "runs", watch=silent)
    last = load_study(small, ["evaluation.choose=last"], BUILT_IN)
    run_locally(last, tmp_path / "runs", watch=silent)


def test_a_loss_that_is_not_a_number_names_site_round_and_stage(federation, monkeypatch):
    small = federation()

    class Breaks(FedAvg):
        def loss(self, site, batch):
            bad = site.round == 2 and site.info.index == 1
            return super().loss(site, batch) * (float("nan") if bad else 1)

    monkeypatch.setitem(METHODS, "breaks", Breaks)
    with pytest.raises(
        TrainingFailed, match=r"site grove became nan in round 2, stage fit, step 1"
    ):
        small.run("breaks", name="broken")
    (run,) = runs_of(small.study("breaks", name="broken"), small.folder / "runs")
    tensors, texts = load_tensors(max((run.folder.path / "checkpoint" / "server").iterdir()))
    assert texts["round"] == "1"
    assert all(torch.isfinite(tensor).all() for tensor in tensors.values())


def test_weights_that_are_not_numbers_are_refused_with_the_site_named(federation, monkeypatch):
    class Explodes(FedAvg):
        def send(self, site):
            message = super().send(site)
            message.weights.flat[0] = float("inf")
            return message

    monkeypatch.setitem(METHODS, "explodes", Explodes)
    with pytest.raises(
        TrainingFailed, match=r"site \w+ answered with weights that are not numbers"
    ):
        federation().run("explodes")


def test_the_best_round_by_validation_is_the_one_kept(federation, monkeypatch):
    """A method that is good in its second round and ruined afterwards ends with the second."""

    class Declines(FedAvg):
        def combine(self, server, replies):
            super().combine(server, replies)
            if server.round > 2:
                server.weights.flat.zero_()

    monkeypatch.setitem(METHODS, "declines", Declines)
    constant = {"sites": 2, "training.iterations": 4, "training.schedule": "constant"}
    small = federation(rounds=3, **constant)
    best = small.run("declines")
    last = small.run("declines", "evaluation.choose=last")
    chosen = best.folder.end().chosen_round
    assert chosen in (1, 2)
    assert {score.round for score in best.folder.scores("test")} == {chosen}
    shorter = federation(rounds=chosen, **constant).run("fedavg", "evaluation.choose=last")
    assert equal(best.tensors("server"), shorter.tensors("server"))
    assert last.folder.end().chosen_round == 3
    assert not any(tensor.any() for tensor in last.tensors("server").values())


def test_the_bytes_of_a_round_are_those_of_its_tensors(federation):
    done = federation().run("fedavg")
    floats = sum(tensor.numel() for tensor in done.tensors("server").values())
    fits = [line for line in done.folder.rounds() if line.stage == "fit"]
    assert {line.down for line in fits} == {4 * floats}
    assert {line.up for line in fits} == {4 * floats + 2 * 8}


STOPPING = """
import os, signal, sys
from polyclinic.engine import study

carry_out = study.carry_out

def until_stopped(run, sites):
    for event in carry_out(run, sites):
        yield event
        if (type(event).__name__, event.round) == ("RoundLine", {round}):
            os.kill(os.getpid(), signal.SIGSTOP)

study.carry_out = until_stopped
from polyclinic.cli import main
main()
"""


def stopped_amid(number: int, small: Path, tmp_path: Path, *settings: str) -> subprocess.Popen:
    """A process that runs the study and stands still amid a round, for as long as one likes."""
    more = ["run", str(small), "--runs", str(tmp_path / "runs"), *(f"--set={s}" for s in settings)]
    process = subprocess.Popen(
        [sys.executable, "-c", STOPPING.format(round=number), *more],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=listen_to_interrupts,
    )
    _, status = os.waitpid(process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status), process.stderr.read()
    return process


def listen_to_interrupts() -> None:
    """Background jobs of a shell ignore them, and so would their children."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.mark.parametrize(
    "how", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.slow)]
)
def test_a_killed_process_loses_at_most_the_round_under_way(small, tmp_path, how):
    small.write_text(TWO_SITES.replace('[[method]]\nname = "local"\n', ""))
    study = load_study(small, ["federation.rounds=4"], BUILT_IN)
    process = stopped_amid(3, small, tmp_path, "federation.rounds=4")
    with pytest.raises(RunError, match=f"in use by process {process.pid}"):
        run_locally(study, tmp_path / "runs", resume=True, watch=silent)
    os.kill(process.pid, how)
    os.kill(process.pid, signal.SIGCONT)
    _, said = process.communicate(timeout=600)
    if how == signal.SIGINT:
        assert process.returncode == 130
        assert "--resume" in said
    events = []
    (run,) = run_locally(
        study, tmp_path / "runs", resume=True, watch=lambda _, event: events.append(event)
    )
    done = [event.round for event in events if isinstance(event, RoundDone)]
    assert done == [3, 4, 5]
    (whole,) = run_locally(study, tmp_path / "others", watch=silent)
    assert equal(Done(whole, []).tensors("server"), Done(run, []).tensors("server"))


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such tie")
def test_workers_end_with_a_killed_run(small, tmp_path):
    with stopped_amid(1, small, tmp_path, "engine.workers=2", "engine.threads=1") as process:
        tasks = Path(f"/proc/{process.pid}/task").glob("*/children")
        children = [child for task in tasks for child in task.read_text().split()]
        process.kill()
    assert children
    left = [Path(f"/proc/{child}") for child in children]
    until = time.monotonic() + 600
    while any(path.exists() for path in left):
        assert time.monotonic() < until, "workers outlive their run"
        time.sleep(0.05)


def test_a_full_disk_is_said_and_nothing_finished_is_lost(federation, monkeypatch):
    small = federation(rounds=3)
    study = small.study("fedavg", name="full")
    (run,) = runs_of(study, small.folder / "runs")
    fsync = os.fsync

    def full(descriptor):
        if "round-00002" in str(Path(f"/proc/self/fd/{descriptor}").readlink()):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RunError, match="No space left on device; free some space"):
        small.run("fedavg", name="full")
    monkeypatch.setattr(os, "fsync", fsync)
    resumed = small.run("fedavg", name="full")
    whole = small.run("fedavg")
    assert equal(resumed.tensors("server"), whole.tensors("server"))
    assert run.folder.finished


def test_sites_may_lack_validation_cases(federation, monkeypatch):
    small = federation()
    first, *others = small.data(small.study())
    without = replace(first, val=first.val.select([]))
    monkeypatch.setattr(small, "data", lambda study: [without, *others])
    done = small.run("fedavg")
    assert {score.site for score in done.folder.scores("val")} == {site.name for site in others}


def test_sites_without_masks_train_but_are_not_scored(federation, monkeypatch):
    small = federation()
    first, *others = small.data(small.study())
    unseen = {
        split: replace(cases, masks=torch.full_like(cases.masks, 255))
        for split, cases in (("val", first.val), ("test", first.test))
    }
    monkeypatch.setattr(small, "data", lambda study: [replace(first, **unseen), *others])
    done = small.run("fedavg", "evaluation.pictures=true")
    assert first.name in {line.site for line in done.folder.rounds()}
    assert {score.site for score in done.folder.scores()} == {site.name for site in others}


def test_two_stages_of_one_name_are_refused(federation):
    twice = '{name = "finetune", iterations = 0}, {name = "finetune", iterations = 3}'
    with pytest.raises(ValueError, match="only one stage called finetune"):
        federation().run("fedavg", then=twice)


def test_a_run_killed_before_its_first_checkpoint_begins_anew(federation):
    small = federation(sites=2, rounds=1)
    study = small.study("metafed", "engine.device=cpu", name="early")
    (run,) = runs_of(study, small.folder / "runs")
    first = next(perform(run, small.data(study)))
    assert isinstance(first, RoundLine)
    assert run.folder.exists
    done = Done(run, list(perform(run, small.data(study))))
    whole = small.run("metafed", "engine.device=cpu")
    assert equal(done.tensors("server"), whole.tensors("server"))
    assert len(done.folder.rounds()) == len(whole.folder.rounds())


def test_methods_that_the_network_does_not_suit_are_all_told_before_any_trains(small, tmp_path):
    text = small.read_text().replace('"unet"\nwidth = 2', '"pvt_fpn"')
    text = text.replace('name = "local"', 'name = "fedap"\n[[method]]\nname = "fedbn"')
    small.write_text(text)
    study = load_study(small, [], BUILT_IN)
    with pytest.raises(RunError, match="network 'pvt_fpn' has none") as told:
        run_locally(study, tmp_path / "runs", watch=silent)
    first, second = str(told.value).splitlines()
    assert first.startswith("FedAP: FedAP compares sites by what BatchNorm layers")
    assert second.startswith("FedBN: FedBN keeps BatchNorm layers at the site")
    assert not any(run.folder.exists for run in runs_of(study, tmp_path / "runs"))
