"""The two apps that Flower starts, the worker behind one of them, and the guard before it."""

import os
import subprocess
import sys
import threading

import pytest
from flwr.app import Context, RecordDict
from flwr.app import Message as FlowerMessage

from polyclinic.config import to_toml
from polyclinic.engine.flower import guard, site_app
from polyclinic.engine.flower.carrier import from_records, receive, to_records
from polyclinic.engine.flower.coordinator import across_hospitals
from polyclinic.engine.flower.engine import events_file
from polyclinic.engine.flower.event_log import EventLog, events_in
from polyclinic.engine.flower.guard import (
    ForeignCode,
    Guard,
    differences,
    in_turn,
    write_bundle,
    write_programs,
)
from polyclinic.engine.flower.processes import socket_path
from polyclinic.engine.flower.server_app import host
from polyclinic.engine.flower.site_app import ask_worker
from polyclinic.engine.flower.wire import header_of
from polyclinic.engine.flower.worker import listening, serve
from polyclinic.engine.loop import RoundDone
from polyclinic.engine.run import runs_of
from polyclinic.engine.sites import Scored
from polyclinic.runs import RoundLine
from tests.engine.flower.hospitals import Hospitals, greeting
from tests.engine.flower.in_process import InProcessLink
from tests.engine.flower.metadata import about


@pytest.fixture
def hospitals(tmp_path):
    return Hospitals(tmp_path, sites=2, network="unet")


def through_app(service, path):
    """A responding function that goes through the site's app and its worker's socket."""

    def respond(payload):
        with listening(path) as door:
            worker = threading.Thread(target=serve, args=(door, service))
            worker.start()
            message = FlowerMessage(content=to_records(payload), metadata=about("1"))
            back = site_app.app(message, Context(1, 1, {}, RecordDict(), {}))
            worker.join()
        return from_records(back.content)

    return respond


def test_a_study_goes_through_both_apps(hospitals, monkeypatch):
    study = across_hospitals(hospitals.study("fedbn"))
    file = hospitals.folder / "hosted.toml"
    file.write_text(to_toml(study))
    root = hospitals.folder / "runs"
    link = InProcessLink.of(hospitals.services())
    deep = hospitals.folder / ("a long name " * 15)
    monkeypatch.setenv(site_app.SOCKET, str(socket_path(deep)))
    first = link.responding[101].__self__
    link.responding[101] = through_app(first, socket_path(deep))
    settings = {"study": str(file), "runs": str(root), "resume": False, "fresh": False}
    settings |= {"insecure": False, "coordinator": os.getpid()}
    host(link, {**settings, "attempt": "one"})
    log = EventLog(events_file(root, study))
    lines = log.news()
    assert lines[0]["as"] == "one"
    assert lines[-1] == {"finished": True}
    runs = runs_of(study, root)
    events = list(events_in(lines, runs))
    assert {type(event) for _, event in events} >= {RoundLine, Scored, RoundDone}
    assert {run.folder.path for run, _ in events} == {runs[0].folder.path}
    assert log.news() == []
    with pytest.raises(ValueError, match="already holds"):
        host(link, {**settings, "attempt": "two"})
    assert "already holds" in EventLog(events_file(root, study)).news()[-1]["error"]


def test_an_error_that_nobody_foresaw_is_told_with_its_kind(hospitals):
    study = across_hospitals(hospitals.study())
    file = hospitals.folder / "hosted.toml"
    file.write_text(to_toml(study))
    settings = {"study": str(file), "runs": str(hospitals.folder / "runs"), "attempt": "one"}
    settings |= dict.fromkeys(("resume", "fresh", "insecure"), False)
    with pytest.raises(AttributeError):
        host(None, {**settings, "coordinator": os.getpid()})
    events = EventLog(events_file(hospitals.folder / "runs", study)).news()
    assert events[-1]["error"].startswith("AttributeError")


def test_a_worker_that_dies_and_one_that_never_comes_are_told_apart(tmp_path, monkeypatch):
    path = tmp_path / "worker.sock"
    with listening(path) as door:

        def die():
            line, _ = door.accept()
            with line, line.makefile("rb") as stream:
                receive(stream)

        dying = threading.Thread(target=die)
        dying.start()
        with pytest.raises(ConnectionError, match="died while it worked"):
            ask_worker(path, b"payload")
        dying.join()
    monkeypatch.setattr(site_app, "START_UP", 0.5)
    with pytest.raises(ConnectionError, match="is not there"):
        ask_worker(tmp_path / "nobody.sock", b"payload")


def test_a_caller_that_hangs_up_does_not_end_the_worker(hospitals, tmp_path):
    import socket

    (service, _) = hospitals.services()
    path = tmp_path / "worker.sock"
    with listening(path) as door:
        with socket.socket(socket.AF_UNIX) as caller:
            caller.connect(str(path))
        serve(door, service)
        worker = threading.Thread(target=serve, args=(door, service))
        worker.start()
        reply = ask_worker(path, greeting(hospitals.study()))
        assert header_of(reply)["site"] == hospitals.names[0]
        worker.join()


@pytest.mark.parametrize("module", ["site_app", "node"])
def test_what_runs_beside_a_worker_needs_no_torch(module):
    code = f"import sys, polyclinic.engine.flower.{module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_the_bundle_is_known_to_the_byte(tmp_path):
    folder = write_bundle(tmp_path / "bundle")
    assert differences(folder) == []
    (folder / "polyclinic").mkdir()
    (folder / "polyclinic" / "__init__.py").write_text("raise SystemExit")
    (folder / "pyproject.toml").write_text("")
    assert differences(folder) == ["polyclinic/__init__.py", "pyproject.toml"]


def test_the_guard_lets_nothing_in_that_came_over_the_wire(tmp_path, monkeypatch):
    apps = tmp_path / "apps"
    guard = Guard(apps)
    monkeypatch.setattr(sys, "path", [*sys.path, str(write_bundle(apps / "ours"))])
    assert guard.find_spec("anything") is None
    (apps / "theirs").mkdir()
    (apps / "theirs" / "payload.py").write_text("")
    monkeypatch.setattr(sys, "path", [*sys.path, str(apps / "theirs")])
    with pytest.raises(ForeignCode, match=r"payload\.py"):
        guard.find_spec("payload")


def test_the_guarded_program_stands_before_flowers_own(tmp_path):
    import os

    programs = write_programs(tmp_path / "programs")
    environment = {**os.environ, "FLWR_HOME": str(tmp_path), "FLWR_TELEMETRY_ENABLED": "0"}
    helped = subprocess.run(
        [programs / "flwr-clientapp", "--help"], env=environment, capture_output=True, text=True
    )
    assert "Run a Flower ClientApp" in helped.stdout
    closed = subprocess.run([programs / "flwr-agentapp"], capture_output=True, text=True)
    assert closed.returncode == 1
    assert "closed at this site" in closed.stderr


def test_programs_start_one_after_another_and_those_too_late_not_at_all(tmp_path, monkeypatch):
    lock, started = tmp_path / "starting", []

    def start(name):
        with in_turn(lock):
            started.append(name)

    with in_turn(lock):
        second = threading.Thread(target=start, args=("second",))
        second.start()
        second.join(0.2)
        assert started == []
    second.join()
    assert started == ["second"]
    monkeypatch.setattr(guard, "LATE", -1.0)
    with pytest.raises(SystemExit, match="too busy"):
        start("late")
    assert started == ["second"]
