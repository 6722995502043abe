"""The coordinator's side without a SuperLink: what it refuses, follows and gives up."""

import json
import os
import socket
import sys

import pytest

from polyclinic.config import SiteSettings
from polyclinic.config.coordinator_file import CoordinatorFile
from polyclinic.engine.flower import coordinator
from polyclinic.engine.flower.coordinator import Coordinator, across_hospitals
from polyclinic.engine.flower.engine import events_file
from polyclinic.engine.flower.event_log import EventLog
from polyclinic.engine.flower.processes import free_port
from polyclinic.engine.loop import RoundDone
from polyclinic.engine.run import runs_of
from polyclinic.runs import RunError
from polyclinic.runs.lock import locked
from tests.engine.flower.hospitals import Hospitals


@pytest.fixture
def hospitals(tmp_path):
    return Hospitals(tmp_path, sites=1, network="unet")


@pytest.fixture
def said():
    return []


@pytest.fixture
def host(tmp_path, said):
    file = CoordinatorFile(port=free_port(), state=tmp_path / "state", insecure=True)
    return Coordinator(file, said.append)


def silent(run, event):
    pass


def test_a_superlink_that_is_there_is_joined(host, said):
    with socket.socket() as door:
        door.bind((host.file.host, host.file.port))
        door.listen()
        with host.open():
            pass
    assert any("insecure" in text for text in said)
    assert any("joining the SuperLink" in text for text in said)
    assert host.superlink is None


def test_a_superlink_that_does_not_start_is_given_up(host, monkeypatch):
    monkeypatch.setattr(coordinator, "START_UP", 0.0)
    with pytest.raises(RunError, match=r"answers on .*; see .*superlink\.log"), host.open():
        pass


def test_a_superlink_that_went_away_is_waited_for_but_not_for_ever(
    hospitals, host, tmp_path, monkeypatch
):
    monkeypatch.setattr(coordinator, "START_UP", 0.5)
    with pytest.raises(RunError, match=rf"no SuperLink answers on 127\.0\.0\.1:{host.file.port}$"):
        host.run(hospitals.study(), tmp_path / "runs", resume=False, fresh=False, watch=silent)


def test_a_site_without_a_key_is_named_before_anything_starts(hospitals, tmp_path, said):
    certificates = dict.fromkeys(("ca", "certificate", "key"), tmp_path / "file")
    file = CoordinatorFile(state=tmp_path / "state", certificates=certificates)
    study = hospitals.study().model_copy(update={"site": (SiteSettings(name="elsewhere"),)})
    with pytest.raises(RunError, match="no key of elsewhere"):
        Coordinator(file, said.append).run(
            study, tmp_path / "runs", resume=False, fresh=True, watch=silent
        )


def test_a_process_that_always_dies_is_given_up(hospitals, host, tmp_path, monkeypatch):
    monkeypatch.setattr(coordinator, "ATTEMPTS", 0)
    with pytest.raises(RunError, match="died 0 times"):
        host.run(hospitals.study(), tmp_path / "runs", resume=False, fresh=False, watch=silent)


@pytest.fixture
def followed(hospitals, tmp_path):
    """The file of events of a study, as its process would write it, and the study's runs."""
    runs = runs_of(across_hospitals(hospitals.study()), tmp_path / "runs")
    return EventLog(tmp_path / "events.jsonl"), runs


def test_an_attempt_is_followed_to_its_end(host, followed, said):
    events, runs = followed
    events.begin("one")
    events.tell("north waits until its people approve the study")
    events.add(runs[0], RoundDone(1, None))
    events.end()
    seen = []
    assert host._follow(EventLog(events.path), "one", runs, lambda *both: seen.append(both))
    assert seen == [(runs[0], RoundDone(1, None))]
    assert said == ["north waits until its people approve the study"]


def test_an_attempt_that_fails_tells_why(host, followed):
    events, runs = followed
    events.begin("one")
    events.end("site north was on fire")
    with pytest.raises(RunError, match="on fire"):
        host._follow(EventLog(events.path), "one", runs, silent)


def test_a_process_that_died_is_noticed(host, followed, monkeypatch):
    events, runs = followed
    monkeypatch.setattr(os, "getpid", lambda: 2**22 + 1)  # no process has such a number
    events.begin("one")
    monkeypatch.undo()
    assert not host._follow(EventLog(events.path), "one", runs, silent)


def test_an_attempt_that_never_begins_is_given_up(host, followed, monkeypatch):
    monkeypatch.setattr(coordinator, "START_UP", 0.0)
    events, runs = followed
    events.begin("another")
    events.end()
    assert not host._follow(EventLog(events.path), "one", runs, silent)


def test_following_ends_when_the_command_is_ended(host, followed):
    events, runs = followed
    host.going_on = lambda: False
    with pytest.raises(KeyboardInterrupt):
        host._follow(events, "one", runs, silent)


def test_commands_that_fail_say_why_unless_that_is_fine(host):
    def flower(code, **settings):
        return host._flower((sys.executable, "-c", code), **settings)

    assert flower("print('noise {\"success\": true}')") == {"success": True}
    assert flower("print('{ nonsense')") == {}
    assert flower("print('nothing')") == {}
    assert flower("raise SystemExit('key already in use')", fine="already in use") == {}
    with pytest.raises(RunError, match="no such run"):
        flower("raise SystemExit('no such run')", fine="already in use")
    with pytest.raises(RunError, match="refused"):
        flower("""print('{"success": false, "error-message": "refused"}')""")


def test_a_command_that_does_not_answer_is_given_up(host, monkeypatch):
    monkeypatch.setattr(coordinator, "START_UP", 0.1)
    with pytest.raises(RunError, match=r"did not answer within 0\.1 seconds"):
        host._flower((sys.executable, "-c", "import time; time.sleep(60)"))


STAND_IN = """#!{python}
import json, sys, tomllib
from pathlib import Path
words = [word for word in sys.argv if "=" in word]
settings = tomllib.loads("\\n".join(words))
notes = Path({notes!r})
tries = json.loads(notes.read_text()) if notes.exists() else []
notes.write_text(json.dumps([*tries, settings]))
lines = [{{"begun": 2**22 + 1, "as": settings["attempt"]}}] + [{{"finished": True}}] * len(tries)
events = Path({events!r})
events.parent.mkdir(parents=True, exist_ok=True)
events.write_text("".join(json.dumps(line) + "\\n" for line in lines))
print('{{"success": true}}')
"""


def test_a_study_whose_process_died_is_taken_up_again(hospitals, host, tmp_path, said):
    """Flower's command is replaced by one whose first process dies and whose second finishes."""
    study = hospitals.study()
    notes, programs = tmp_path / "notes.json", tmp_path / "programs"
    programs.mkdir()
    events = events_file(tmp_path / "runs", study)
    text = STAND_IN.format(python=sys.executable, notes=str(notes), events=str(events))
    (programs / "flwr").write_text(text)
    (programs / "flwr").chmod(0o700)
    host.environment["PATH"] = str(programs)
    with socket.socket() as door:
        door.bind((host.file.host, host.file.port))
        door.listen()
        host.run(study, tmp_path / "runs", resume=False, fresh=True, watch=silent)
    first, second = json.loads(notes.read_text())
    assert (first["fresh"], first["resume"]) == (True, False)
    assert (second["fresh"], second["resume"]) == (False, True)
    assert second["coordinator"] == os.getpid()
    assert "the study's process died; it goes on from its last finished round" in said


def test_a_second_coordinator_of_the_same_study_is_refused_and_changes_nothing(
    hospitals, host, tmp_path
):
    study = across_hospitals(hospitals.study())
    events = events_file((tmp_path / "runs").resolve(), study)
    EventLog(events).begin("first")
    before = events.read_bytes()
    settings = {"resume": False, "fresh": True, "watch": lambda run, event: None}
    with (
        locked(events.with_name("coordinator.lock")),
        pytest.raises(RunError, match="is in use by process"),
    ):
        host.run(study, tmp_path / "runs", **settings)
    assert events.read_bytes() == before
