"""Coordinator and sites as real processes, TLS and keys on: equality and faults.

One deployment is kept alive for all of these; `make test-federation` runs them.
"""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from polyclinic.config.coordinator_file import load_coordinator_file
from polyclinic.engine.flower.coordinator import Coordinator
from polyclinic.engine.flower.ledger import Ledger
from polyclinic.engine.tensors import load_tensors
from polyclinic.methods import METHODS
from polyclinic.runs import RunFolder, run_path
from tests.engine.flower.deployment import Federation, wait_until
from tests.engine.flower.hospitals import Hospitals
from tests.federations import equal

TOGETHER = [
    name
    for name in ("fedavg", "fedbn", "scaffold", "fedlppa", "pflfe", "metafed", "feddp")
    if name in METHODS
]
QUICK = ("federation.rounds=1", "evaluation.every=0", "evaluation.choose=last")
PATIENT = ("engine.name=flower", "engine.deadline=240", "engine.patience=30")


def test_a_study_through_real_processes_gives_the_same_bits(tmp_path):
    """The quick one: two sites, one round, everything else as deployed."""
    hospitals = Hospitals(tmp_path, sites=2)
    federation = Federation(hospitals)
    study = hospitals.study("fedbn", *QUICK, *PATIENT)
    said = []
    file = load_coordinator_file(federation.coordinator)
    file.state.mkdir()
    (file.state / "registered.json").write_text('{"of another SuperLink": "a key"}')
    settings = {"resume": False, "fresh": False, "watch": lambda run, event: None}
    try:
        host = Coordinator(file, said.append)
        with host.open():
            for name in hospitals.names:
                federation.start_site(name)
            host.run(study, tmp_path / "runs", **settings)
    finally:
        federation.close()
    check_equal(federation, study)
    for name in hospitals.names:
        ledger = Ledger(federation.state(name) / "ledger.jsonl")
        assert ledger.mistakes() == []
        assert {line["stage"] for line in ledger.lines()} >= {"hello", "fit", "settle"}


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    federation = Federation(Hospitals(tmp_path_factory.mktemp("federation"), sites=4))
    federation.start_superlink()
    for name in federation.hospitals.names:
        federation.start_site(name)
    yield federation
    federation.close()


@pytest.mark.federation
@pytest.mark.parametrize("method", TOGETHER)
def test_methods_are_bit_equal_through_real_processes(federation, method):
    study = federation.hospitals.study(method, "federation.rounds=2", *QUICK[1:])
    text = federation.serve(study)
    assert "report:" in text
    check_equal(federation, study)


@pytest.mark.federation
def test_a_site_killed_in_a_round_rejoins_later(federation):
    study = federation.hospitals.study(
        "fedbn", *QUICK[1:], *PATIENT, "federation.rounds=4", "training.iterations=40"
    )
    victim = federation.hospitals.names[0]
    server = federation.start_server(study)
    wait_until(lambda: rounds_done(federation, study) >= 1)
    federation.kill(victim)
    wait_until(lambda: rounds_done(federation, study) >= 2, 400)
    federation.start_site(victim)
    assert server.wait(900) == 0, federation.log("server")
    run = RunFolder(federation.hospitals.run_folder(study))
    missed = [line for line in run.rounds() if line.missed]
    assert {line.site for line in missed} == {victim}
    assert any(line.site == victim and not line.missed and line.round >= 3 for line in run.rounds())


@pytest.mark.federation
def test_a_worker_that_dies_alone_is_started_again(federation):
    study = federation.hospitals.study(
        "fedbn", *QUICK[1:], *PATIENT, "federation.rounds=2", "training.iterations=150"
    )
    victim = federation.hospitals.names[1]
    server = federation.start_server(study)
    wait_until(lambda: "work fit" in federation.log(victim).rpartition("worker ended")[2], 200)
    os.kill(worker_of(federation, victim), signal.SIGKILL)
    assert server.wait(900) == 0, federation.log("server")
    check_equal(federation, study)


@pytest.mark.federation
def test_a_killed_superlink_comes_back_and_the_study_goes_on(federation):
    study = federation.hospitals.study("fedbn", *QUICK[1:], *PATIENT, "federation.rounds=3")
    server = federation.start_server(study)
    wait_until(lambda: rounds_done(federation, study) >= 1)
    federation.kill("superlink")
    time.sleep(5)
    federation.start_superlink()
    assert server.wait(900) == 0, federation.log("server")
    check_equal(federation, study)


@pytest.mark.federation
def test_a_killed_coordinator_resumes_at_its_last_round(federation):
    study = federation.hospitals.study("fedbn", *QUICK[1:], *PATIENT, "federation.rounds=3")
    federation.start_server(study)
    wait_until(lambda: rounds_done(federation, study) >= 1)
    os.kill(app_of(federation, study), signal.SIGKILL)
    federation.kill("server")
    federation.serve(study, "--resume", seconds=900)
    check_equal(federation, study)
    done = RunFolder(federation.hospitals.run_folder(study)).rounds()
    assert len([line for line in done if line.round == 1]) == 4


@pytest.mark.federation
def test_a_site_slower_than_the_deadline_is_left_out(federation):
    slow = federation.hospitals.names[2]
    study = federation.hospitals.study(
        "fedavg", *QUICK, "engine.name=flower", "engine.deadline=45", "engine.patience=20"
    )
    server = federation.start_server(study)
    wait_until(lambda: "begun" in events_text(federation, study))
    os.kill(worker_of(federation, slow), signal.SIGSTOP)
    try:
        server.wait(900)
    finally:
        os.kill(worker_of(federation, slow), signal.SIGCONT)
    text = federation.log("server") + events_text(federation, study)
    assert slow in text
    assert "did not answer within 45 seconds" in text


@pytest.mark.federation
def test_a_full_disk_at_a_site_is_told_and_the_rest_goes_on(federation):
    """A file system of a few kilobytes lies where the site's states go."""
    victim = federation.hospitals.names[3]
    study = federation.hospitals.study("fedavg", *QUICK, *PATIENT, "training.keep_optimizer=true")
    folder = run_path(federation.state(victim) / "runs", study.name, study.method[0].label, 0)
    folder.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("a small file system can only be mounted by root")
    try:
        federation.serve(study)
    finally:
        subprocess.run(["umount", str(folder)], check=True)
    run = RunFolder(federation.hospitals.run_folder(study))
    missed = [line for line in run.rounds() if line.missed]
    assert {line.site for line in missed} == {victim}
    assert "No space left" in missed[0].missed


@pytest.mark.federation
def test_an_exception_at_a_site_reaches_the_coordinator_without_paths_or_cases(federation):
    victim = federation.hospitals.names[0]
    site = federation.deployment.site(victim)
    image = next((site / "data" / "images").iterdir())
    content = image.read_bytes()
    os.kill(worker_of(federation, victim), signal.SIGKILL)  # it has read the pictures already
    image.write_bytes(b"no picture")
    study = federation.hospitals.study("fedavg", *QUICK, *PATIENT)
    server = federation.start_server(study)
    assert server.wait(300) == 2
    image.write_bytes(content)
    text = federation.log("server")
    assert f"{victim}: it refused:" in text
    assert image.stem not in text
    assert str(site) not in text.rpartition("it refused:")[2]


def check_equal(federation, study) -> None:
    """The weights of all sites, and the server's, against a run of the local engine."""
    hospitals = federation.hospitals
    here = hospitals.run_locally(study)
    there = hospitals.run_folder(study)
    server = load_tensors(there / "weights" / "server.safetensors")[0]
    assert equal(server, load_tensors(here / "weights" / "server.safetensors")[0])
    for name in hospitals.names:
        label, seed = study.method[0].label, study.seeds[0]
        folder = run_path(federation.state(name) / "runs", study.name, label, seed)
        model = load_tensors(folder / "weights" / f"{name}.safetensors")[0]
        assert equal(model, load_tensors(here / "weights" / f"{name}.safetensors")[0])
        assert not (there / "weights" / f"{name}.safetensors").exists()


def events_text(federation, study) -> str:
    folder = federation.hospitals.run_folder(study).parent.parent
    file = folder / "events.jsonl"
    return file.read_text() if file.exists() else ""


def rounds_done(federation, study) -> int:
    text = events_text(federation, study)
    return max(
        (json.loads(x)["done"]["round"] for x in text.splitlines() if '"done"' in x), default=-1
    )


def app_of(federation, study) -> int:
    return json.loads(events_text(federation, study).splitlines()[0])["begun"]


def worker_of(federation, name: str) -> int:
    """The process of a site's worker: the child of `polyclinic site` with its file."""
    file = str(federation.deployment.site(name) / "SITE.toml")
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_text().split("\0")
        except OSError:
            continue
        if "polyclinic.engine.flower.worker" in words and file in words:
            return int(folder.name)
    raise AssertionError(f"{name} has no worker")
