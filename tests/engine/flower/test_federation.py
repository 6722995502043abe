"""Coordinator and sites as real processes, TLS and keys on: equality and faults.

One deployment is kept alive for all of these; `make test-all` runs them.
"""

import os
import signal
import subprocess
import time

import pytest

from polyclinic.config.coordinator_file import load_coordinator_file
from polyclinic.engine.flower.coordinator import Coordinator
from polyclinic.engine.flower.ledger import Ledger
from polyclinic.engine.flower.signing import signed_by
from polyclinic.engine.flower.witness import Countersignatures, differences, noted_in
from polyclinic.runs import RunFolder, run_path
from polyclinic.runs.lock import alive
from tests.engine.flower.deployment import Federation, descendants, seconds_worked, wait_until
from tests.engine.flower.hospitals import WEAK, Hospitals

TOGETHER = ("fedavg", "fedbn", "scaffold", "fedlppa", "pflfe", "metafed", "feddp")
QUICK = ("federation.rounds=1", "evaluation.every=0", "evaluation.choose=last")
HASTY = ("engine.name=flower", "engine.deadline=60", "engine.patience=20")
PATIENT = ("engine.name=flower", "engine.deadline=240", "engine.patience=30")
UNHURRIED = ("engine.name=flower", "engine.deadline=1800", "engine.patience=600")


def test_a_study_through_real_processes_gives_the_same_bits(tmp_path):
    """The quick one: two sites, one round, everything else as deployed."""
    hospitals = Hospitals(tmp_path, sites=2, network="unet")
    federation = Federation(hospitals)
    study = hospitals.study("fedbn", *QUICK, *UNHURRIED)
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
    federation.check_equal(study)
    for name in hospitals.names:
        ledger = Ledger(federation.state(name) / "ledger.jsonl")
        assert ledger.mistakes() == []
        assert {line["stage"] for line in ledger.lines()} >= {"greeting", "fit", "finalize"}
        noted = noted_in(hospitals.run_folder(study).parents[1] / "ledgers.json", name)
        ca = federation.deployment.site(name) / "certificates" / "ca.crt"
        assert signed_by(ca, noted.text(name), noted.signed)
        assert differences(noted, ledger) == []
        kept = Countersignatures(federation.state(name), name, ca)
        assert kept.file.exists()
        assert kept.mistakes(ledger) == []


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    federation = Federation(
        Hospitals(tmp_path_factory.mktemp("federation"), sites=4, network="unet")
    )
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
    federation.check_equal(study)
    sites = RunFolder(federation.hospitals.run_folder(study)).about().sites
    assert [site.kind for site in sites] == list(WEAK.get(method, ["mask"] * 4))


@pytest.mark.federation
def test_a_site_killed_in_a_round_rejoins_later(federation):
    study = federation.hospitals.study(
        "fedbn", *QUICK[1:], *PATIENT, "federation.rounds=4", "training.iterations=40"
    )
    victim = federation.hospitals.names[0]
    server = federation.start_server(study)
    wait_until(lambda: federation.rounds_done(study) >= 1)
    federation.kill(victim)
    wait_until(lambda: federation.rounds_done(study) >= 2)
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
    wait_until(lambda: federation.rounds_done(study) >= 0)
    worker = federation.worker(victim)
    idle = seconds_worked(worker)
    wait_until(lambda: seconds_worked(worker) > idle + 0.5)
    os.kill(worker, signal.SIGKILL)
    assert server.wait(900) == 0, federation.log("server")
    assert f"the worker of {victim} ended (-9)" in federation.log(victim)
    federation.check_equal(study)


@pytest.mark.federation
def test_a_killed_superlink_comes_back_and_the_study_goes_on(federation):
    """First the SuperLink alone, then with all its programs, the study's own process among them."""
    study = federation.hospitals.study("fedbn", *QUICK[1:], *PATIENT, "federation.rounds=3")
    server = federation.start_server(study)
    wait_until(lambda: federation.rounds_done(study) >= 1)
    federation.kill("superlink", alone=True)
    time.sleep(5)
    federation.start_superlink()
    wait_until(lambda: federation.rounds_done(study) >= 2)
    federation.kill("superlink")
    time.sleep(5)
    federation.start_superlink()
    assert server.wait(900) == 0, federation.log("server")
    federation.check_equal(study)


@pytest.mark.federation
def test_a_killed_study_or_coordinator_goes_on_from_its_last_round(federation):
    """First the study's own process, which the coordinator starts again, then the coordinator.

    The first round is the best, so its states must outlive both.
    """
    validated = ("federation.rounds=4", "evaluation.every=1")
    study = federation.hospitals.study("fedbn", *validated, *PATIENT)
    federation.start_server(study)
    wait_until(lambda: federation.rounds_done(study) >= 1)
    first = federation.app(study)
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: federation.rounds_done(study) >= 2)
    assert "the study's process died" in federation.log("server")
    second = federation.app(study)
    assert second != first
    federation.kill("server")
    wait_until(lambda: not alive(second))
    federation.serve(study, "--resume")
    federation.check_equal(study)
    run = RunFolder(federation.hospitals.run_folder(study))
    assert run.end().chosen_round == 1
    done = run.rounds()
    assert [len([line for line in done if line.round == number]) for number in (1, 2)] == [4, 4]


@pytest.mark.federation
def test_a_killed_coordinator_leaves_nothing_running_and_knows_its_keys_again(tmp_path):
    """With a SuperLink of its own, and the note of the keys it has let in lost."""
    hospitals = Hospitals(tmp_path, sites=2, network="unet")
    federation = Federation(hospitals)
    study = hospitals.study("fedbn", *QUICK[1:], *PATIENT, "federation.rounds=3")
    try:
        server = federation.start_server(study)
        for name in hospitals.names:
            federation.start_site(name)
        wait_until(lambda: federation.rounds_done(study) >= 1)
        started = descendants(server.pid)
        for program in ("flower-superlink", "flower-superexec", "flwr-serverapp"):
            assert any(program in command for command in started.values())
        server.kill()
        server.wait()
        wait_until(lambda: not any(map(alive, started)))
        load_coordinator_file(federation.coordinator).state.joinpath("registered.json").unlink()
        federation.serve(study, "--resume")
    finally:
        federation.close()
    federation.check_equal(study)


@pytest.mark.federation
def test_a_site_slower_than_the_deadline_is_left_out_and_rejoins(federation):
    slow = federation.hospitals.names[2]
    study = federation.hospitals.study("fedbn", *QUICK[1:], *HASTY, "federation.rounds=2")
    server = federation.start_server(study)
    wait_until(lambda: federation.rounds_done(study) >= 0)
    worker = federation.worker(slow)
    os.kill(worker, signal.SIGSTOP)
    try:
        wait_until(lambda: federation.rounds_done(study) >= 1)
    finally:
        os.kill(worker, signal.SIGCONT)
    assert server.wait(900) == 0, federation.log("server")
    assert federation.missed(study) == {(1, "fit", slow): "it did not answer within 60 seconds"}


@pytest.mark.federation
def test_no_reply_at_all_stops_the_study_which_is_resumed_later(federation):
    hospitals = federation.hospitals
    study = hospitals.study("fedbn", *QUICK[1:], *HASTY, "federation.rounds=2")
    server = federation.start_server(study)
    wait_until(lambda: federation.rounds_done(study) >= 1)
    workers = [federation.worker(name) for name in hospitals.names]
    for worker in workers:
        os.kill(worker, signal.SIGSTOP)
    try:
        assert server.wait(900) == 2
    finally:
        for worker in workers:
            os.kill(worker, signal.SIGCONT)
    text = " ".join(federation.log("server").split())
    assert "only 0 of 4 sites answered in round 2, stage fit, and 2 are needed" in text
    for name in hospitals.names:
        assert f"{name}: it did not answer within 60 seconds" in text
    assert not RunFolder(hospitals.run_folder(study)).finished
    federation.serve(study, "--resume")
    federation.check_equal(study)


@pytest.mark.federation
def test_a_full_disk_at_a_site_is_told_and_the_rest_goes_on(federation):
    """A file system of a few kilobytes lies where the site's states go."""
    victim = federation.hospitals.names[3]
    study = federation.hospitals.study("fedavg", *QUICK, *PATIENT, "training.keep_optimizer=true")
    folder = run_path(federation.state(victim) / "runs", study.name, study.method[0].title, 0)
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
    os.kill(federation.worker(victim), signal.SIGKILL)  # it has read the pictures already
    image.write_bytes(b"no picture")
    study = federation.hospitals.study("fedavg", *QUICK, *PATIENT)
    server = federation.start_server(study)
    assert server.wait(900) == 2
    image.write_bytes(content)
    text = federation.log("server")
    assert f"{victim}: it refused:" in text
    assert image.stem not in text
    assert str(site) not in text.rpartition("it refused:")[2]
