"""Random kills, a second coordinator and the SuperLink's database, with real processes."""

import os
import random
import signal
import subprocess

import pytest

from polyclinic.engine.tensors import load_tensors
from tests.engine.flower.deployment import POLYCLINIC, Federation, wait_until
from tests.engine.flower.hospitals import Hospitals

PATIENT = ("engine.name=flower", "engine.deadline=600", "engine.patience=120")
KILLS = 10


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    federation = Federation(Hospitals(tmp_path_factory.mktemp("kills"), sites=2, network="unet"))
    federation.start_superlink()
    for name in federation.hospitals.names:
        federation.start_site(name)
    yield federation
    federation.close()


@pytest.mark.federation
def test_ten_random_kills_of_real_processes_change_no_bit(federation):
    """Workers, the study's own process and the coordinator, each wherever it is at that moment."""
    rng = random.Random(18)
    study = federation.hospitals.study(
        "fedbn", *PATIENT, f"federation.rounds={KILLS}", "evaluation.every=1"
    )
    server = federation.start_server(study)
    victims = [*federation.hospitals.names * 2, *["study"] * 3, *["coordinator"] * 3]
    rng.shuffle(victims)
    assert len(victims) == KILLS
    for done, victim in enumerate(victims):
        wait_until(lambda done=done: federation.rounds_done(study) >= done)
        if victim == "coordinator":
            federation.kill("server")
            server = federation.start_server(study, "--resume")
        else:
            process = federation.app(study) if victim == "study" else federation.worker(victim)
            os.kill(process, signal.SIGKILL)
    assert server.wait(900) == 0, federation.log("server")
    federation.check_equal(study)
    assert federation.missed(study) == {}


@pytest.mark.federation
def test_a_second_coordinator_is_refused_and_the_first_goes_on(federation):
    study = federation.hospitals.study("fedbn", *PATIENT, "federation.rounds=2")
    server = federation.start_server(study)
    wait_until(lambda: federation.events(study))
    command = (POLYCLINIC, "server", str(federation.folder / f"{study.name}.toml"), "--resume")
    places = ("--coordinator", str(federation.coordinator), "--runs", federation.folder / "runs")
    second = subprocess.run((*command, *places), capture_output=True, text=True)
    assert second.returncode == 2
    assert "is in use by process" in second.stderr
    assert server.wait(900) == 0, federation.log("server")
    federation.check_equal(study)


@pytest.mark.federation
def test_disclosed_weights_cannot_be_read_in_the_superlink_s_database(federation):
    hospitals = federation.hospitals
    once = ("federation.rounds=1", "evaluation.every=0", "evaluation.choose=last")
    alone = hospitals.run_locally(hospitals.study("fedbn", *once))
    private = [piece for name in hospitals.names for piece in norms(alone, name)]
    assert private
    study = hospitals.study("fedbn", *PATIENT, *once, then='{name = "igc", iterations = 1}')
    server, seen = federation.start_server(study), []

    def finished():
        stored = b"".join(file.read_bytes() for file in federation.folder.glob("superlink.db*"))
        seen.append(b"disclosed/" in stored)
        assert not any(piece in stored for piece in private)
        return server.poll() is not None

    wait_until(finished)
    assert server.returncode == 0, federation.log("server")
    assert any(seen)  # it was there to be read
    federation.check_equal(study)


def norms(folder, name):
    """Slices of a site's private weights, of those whose values are not alike."""
    model = load_tensors(folder / "weights" / f"{name}.safetensors")[0]
    for key, tensor in model.items():
        if "norm" in key and tensor.numel() >= 4 and tensor[:4].unique().numel() > 2:
            yield tensor[:4].numpy().tobytes()
