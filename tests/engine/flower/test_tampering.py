"""Hospitals that answer nonsense, are unknown or there twice, as real processes with TLS and keys.

One deployment is kept alive for all of these; `make test-all` runs them.
"""

import os
import signal
from contextlib import contextmanager

import pytest

from polyclinic.catalog import BUILT_IN
from polyclinic.config.coordinator_file import load_coordinator_file
from polyclinic.engine.flower.coordinator import Coordinator
from polyclinic.engine.flower.ledger import Ledger
from polyclinic.engine.flower.site_service import SiteService
from polyclinic.engine.tensors import load_tensors
from polyclinic.runs import RunFolder
from tests.engine.flower.deployment import Federation, wait_until
from tests.engine.flower.hospitals import Hospitals
from tests.engine.flower.in_process import InProcessLink
from tests.engine.flower.spoilers import SPOILERS
from tests.engine.flower.tampered import TamperedService, order
from tests.federations import equal

pytestmark = pytest.mark.federation

SETTINGS = (
    "engine.name=flower",
    "engine.deadline=1800",
    "engine.patience=5",
    "evaluation.every=0",
    "evaluation.choose=last",
)
ROUNDS = {
    1: "nan",
    2: "names",
    3: "fewer",
    4: "shape",
    5: "type",
    6: "site",
    7: "seconds",
    8: "markup",
}


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    """An honest site, two with a tampered program, and three machines that nobody asked to come.

    The stranger's key is registered under a name that no study has, the guest's without a name, and
    the outsider's not at all.
    """
    hospitals = Hospitals(tmp_path_factory.mktemp("tampering"), sites=3, network="unet")
    federation = Federation(hospitals)
    honest, *tampered = hospitals.names
    stranger = federation.add_folder("stranger", honest, site="stranger")
    guest = federation.add_folder("guest", honest, site="nobody")
    federation.add_folder("outsider", honest, site=honest)
    with federation.coordinator.open("a") as file:
        file.write(f'\nstranger = "{stranger}"\n')
    try:
        federation.start_superlink()
        federation.register(guest)
        with Coordinator(load_coordinator_file(federation.coordinator), print).open():
            pass
        for name in (honest, "stranger", "guest", "outsider"):
            federation.start_site(name)
        for name in tampered:
            federation.start_site(name, tampered=True)
        wait_until(lambda: arrivals(federation) == 5)
        yield federation
    finally:
        federation.close()


@pytest.fixture(scope="module")
def spoilt(federation):
    """A study in which one site spoils each of its answers in another way."""
    hospitals = federation.hospitals
    study = hospitals.study("fedbn", *SETTINGS, f"federation.rounds={len(ROUNDS)}")
    folder = federation.deployment.site(hospitals.names[1])
    order(folder, ROUNDS)
    federation.serve(study)
    order(folder, {})
    return study


@pytest.mark.parametrize(("number", "how"), ROUNDS.items())
def test_a_spoilt_answer_is_left_out_of_its_round_by_name(federation, spoilt, number, how):
    left_out = {key: why for key, why in federation.missed(spoilt).items() if key[0] == number}
    assert list(left_out) == [(number, "fit", federation.hospitals.names[1])]
    assert SPOILERS[how][1] in next(iter(left_out.values()))


def test_spoilt_answers_change_nothing_but_their_rounds(federation, spoilt):
    """Bit-equal to the same study without processes, the same answers spoilt."""
    hospitals = federation.hospitals
    names = hospitals.names
    assert {number for number, _, _ in federation.missed(spoilt)} == set(ROUNDS)
    files = [hospitals.site_file(name, state="reference") for name in names]
    services = [
        TamperedService(file, BUILT_IN) if file.name == names[1] else SiteService(file, BUILT_IN)
        for file in files
    ]
    order(hospitals.folder / "reference", ROUNDS)
    again = spoilt.model_copy(update={"name": f"{spoilt.name} again"})
    hospitals.run_with(InProcessLink.of(services), again)
    server, reference = (
        load_tensors(hospitals.run_folder(each) / "weights" / "server.safetensors")[0]
        for each in (spoilt, again)
    )
    assert equal(server, reference)
    for name in names:
        assert equal(federation.model(spoilt, name), hospitals.site_model(again, name, "reference"))
        assert Ledger(federation.state(name) / "ledger.jsonl").mistakes() == []


def test_machines_that_the_study_does_not_know_get_no_message(federation, spoilt):
    run = RunFolder(federation.hospitals.run_folder(spoilt))
    assert [site.name for site in run.about().sites] == federation.hospitals.names
    for folder in ("stranger", "guest", "outsider"):
        assert asked(federation, folder) == set()
    assert "the SuperNode of" in federation.log("outsider")
    assert refused(federation, "outsider")


def test_too_many_spoilt_answers_stop_the_study_which_is_resumed_later(federation):
    hospitals = federation.hospitals
    honest, *tampered = hospitals.names
    study = hospitals.study("fedbn", *SETTINGS, "federation.rounds=2")
    for name, how in zip(tampered, ("nan", "shape"), strict=True):
        order(federation.deployment.site(name), {2: how})
    server = federation.start_server(study)
    assert server.wait(900) == 2
    text = " ".join(federation.log("server").split())
    assert "only 1 of 3 sites answered in round 2, stage fit, and 2 are needed" in text
    for name, how in zip(tampered, ("nan", "shape"), strict=True):
        assert f"{name}: its message has" in text
        assert SPOILERS[how][1] in text
        order(federation.deployment.site(name), {})
    assert f"{honest}: " not in text.rpartition("only 1 of 3")[2]
    federation.serve(study, "--resume")
    federation.check_equal(study)
    done = RunFolder(hospitals.run_folder(study)).rounds()
    assert len([line for line in done if line.round == 1]) == 3


def test_a_site_that_is_there_twice_is_left_out_until_it_is_there_once(federation):
    """A copy with the site's own key and a machine that only claims its name change nothing."""
    hospitals = federation.hospitals
    holder, _, site = hospitals.names
    federation.add_folder("copy", site, site=site, own_key=False)
    federation.register(federation.add_folder("double", site, site=site), site)
    federation.end("guest")
    federation.allow("guest", {'name = "nobody"': f'name = "{site}"'})
    before = arrivals(federation)
    federation.start_site("guest")
    federation.start_site("copy")
    wait_until(lambda: arrivals(federation) == before + 1 and refused(federation, "copy"))
    study = hospitals.study("fedbn", *SETTINGS, "federation.rounds=4")
    server = federation.start_server(study)
    wait_until(lambda: federation.rounds_done(study) >= 1)
    with held(federation.worker(holder)):  # nobody may miss the double in the third round
        federation.start_site("double")
        wait_until(lambda: arrivals(federation) == before + 2)
    wait_until(lambda: federation.rounds_done(study) >= 3)
    with held(federation.worker(holder)):
        leavings = federation.log("superlink").count("] Deactivated node_id")
        federation.end("double")
        assert federation.log("superlink").count("] Deactivated node_id") == leavings + 1
    assert server.wait(900) == 0, federation.log("server")
    ((where, reason),) = federation.missed(study).items()
    assert where == (3, "fit", site)
    assert "more than one machine is connected under its name" in reason
    for folder in ("copy", "double", "guest"):
        assert asked(federation, folder) == set()


def arrivals(federation) -> int:
    """How often a machine was let in by the SuperLink."""
    return federation.log("superlink").count("] Activated node_id")


def refused(federation, folder: str) -> bool:
    """Whether the SuperLink has refused the key of a machine."""
    log = federation.state(folder) / "supernode.log"
    return log.exists() and "2004" in log.read_text()


def asked(federation, folder: str) -> set[str]:
    """The stages for which anything left a machine."""
    return {line["stage"] for line in Ledger(federation.state(folder) / "ledger.jsonl").lines()}


@contextmanager
def held(worker: int):
    """A worker that does nothing for as long as the block lasts."""
    os.kill(worker, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(worker, signal.SIGCONT)
