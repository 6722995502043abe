"""Processes killed at random moments: every study finishes, with the bits of one left alone."""

import multiprocessing
import random

import pytest

from polyclinic.engine.tensors import load_tensors
from polyclinic.runs import RunFolder
from tests.engine.flower.forked import FORK, SERVER, ForkedFederation
from tests.engine.flower.hospitals import Hospitals
from tests.federations import equal

KILLS = 100
OF_A_STUDY = 5  # at most
OF_A_SITE = 2  # at most, because a message that gets lost three times is given up
STUDIES = (("fedbn", ""), ("scaffold", ""), ("fedbn", '{name = "igc", iterations = 1}'))


def locally(hospitals, study):
    """The run folder of the local engine, made in a process of its own: forks need a clean one."""
    process = FORK.Process(target=hospitals.run_locally, args=(study,))
    process.start()
    process.join()
    assert process.exitcode == 0
    return RunFolder(hospitals.run_folder(study, "local"))


def check_equal(hospitals, study, federation, local):
    run = RunFolder(hospitals.run_folder(study, f"runs-{federation.name}"))
    assert run.finished
    assert not [line for line in run.rounds() if line.missed]
    assert run.end().chosen_round == local.end().chosen_round
    server, expected = (load_tensors(each.weights_path("server"))[0] for each in (run, local))
    assert equal(server, expected)
    for name in hospitals.names:
        own = hospitals.site_model(study, name, federation.state)
        assert equal(own, load_tensors(local.weights_path(name))[0])


@pytest.mark.slow
def test_a_hundred_random_kills_of_coordinators_and_sites_change_no_bit(tmp_path):
    # No fork survives in a process that has used OpenMP's threads, as other tests here do.
    process = multiprocessing.get_context("spawn").Process(target=kill_often, args=(tmp_path,))
    process.start()
    process.join()
    assert process.exitcode == 0


def kill_often(folder):
    hospitals = Hospitals(folder, sites=2)
    rng = random.Random(18)
    settings = ("federation.rounds=3", "evaluation.every=1", "engine.name=flower")
    studies = [hospitals.study(method, *settings, then=then) for method, then in STUDIES]
    expected = [locally(hospitals, study) for study in studies]
    done = dict.fromkeys((*hospitals.names, SERVER), 0)
    number = 0
    while sum(done.values()) < KILLS:
        study, local = studies[number % len(studies)], expected[number % len(studies)]
        federation = ForkedFederation(hospitals, study, str(number))
        victims = [SERVER] * OF_A_STUDY + hospitals.names * OF_A_SITE
        rng.shuffle(victims)
        try:
            for victim in victims[:OF_A_STUDY]:
                if federation.ended(rng.uniform(0.0, 1.0)):
                    break
                federation.kill(victim)
                done[victim] += 1
            assert federation.ended(600)
        finally:
            federation.close()
        check_equal(hospitals, study, federation, local)
        number += 1
    assert min(done.values()) > 10
