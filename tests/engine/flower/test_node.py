"""A hospital's programs, as real processes: kept running, started again, ended together."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from polyclinic.config.node_file import ServerAddress
from polyclinic.engine.flower.node import run_site
from polyclinic.engine.flower.processes import (
    SupervisedProcess,
    end,
    free_port,
    listens,
    socket_path,
    start,
)
from polyclinic.engine.flower.site_app import ask_worker
from polyclinic.engine.flower.wire import header_of
from polyclinic.runs.lock import alive
from tests.engine.flower.deployment import wait_until
from tests.engine.flower.hospitals import Hospitals, greeting


@pytest.mark.slow
def test_a_site_outlives_the_death_of_its_worker(tmp_path):
    hospitals = Hospitals(tmp_path, sites=1, network="unet")
    site = hospitals.site_file(hospitals.names[0])
    said, going_on = [], threading.Event()
    going_on.set()
    supervisor = threading.Thread(
        target=run_site,
        args=(site, tmp_path / f"{site.name}.toml"),
        kwargs={"say": said.append, "going_on": going_on.is_set},
    )
    supervisor.start()
    try:
        payload = greeting(hospitals.study())
        assert "response" in header_of(ask_worker(socket_path(site.state), payload))
        (worker,) = [pid for pid in _children() if "flower.worker" in _command(pid)]
        os.kill(worker, signal.SIGKILL)
        while not any("worker" in text and "(-9)" in text for text in said):
            time.sleep(0.1)
        assert "response" in header_of(ask_worker(socket_path(site.state), payload))
    finally:
        going_on.clear()
        supervisor.join()
    assert any("insecure" in text for text in said)
    assert not [pid for pid in _children() if site.name in _command(pid)]


def test_a_site_with_a_broken_ledger_does_not_start_and_says_why(tmp_path):
    hospitals = Hospitals(tmp_path, sites=1)
    site = hospitals.site_file(hospitals.names[0])
    site.state.mkdir(parents=True)
    (site.state / "ledger.jsonl").write_text("nonsense\n")
    with pytest.raises(ValueError, match=r"line 1 of .*ledger.jsonl is not a line of a ledger"):
        run_site(site, tmp_path / "node.toml", say=print, going_on=lambda: False)


def test_a_site_with_keys_has_nothing_to_warn_of(tmp_path):
    hospitals = Hospitals(tmp_path, sites=1)
    site = hospitals.site_file(hospitals.names[0])
    server = ServerAddress(address="127.0.0.1:1", ca=tmp_path / "ca", key=tmp_path / "key")
    said = []
    run_site(
        site.model_copy(update={"server": server}),
        tmp_path / "node.toml",
        say=said.append,
        going_on=lambda: False,
    )
    assert said == [f"site {site.name} connects to 127.0.0.1:1"]


def test_a_program_that_ends_is_started_again_after_longer_and_longer_pauses():
    said = []
    kept = SupervisedProcess(
        "it", (sys.executable, "-c", "raise SystemExit(3)"), os.environ, said.append
    )
    end_at = time.monotonic() + 300
    while len(said) < 2:
        assert time.monotonic() < end_at
        kept.look()
        time.sleep(0.05)
    assert said == [f"it ended (3); it starts again in {pause} seconds" for pause in (2, 4)]
    kept.stop()


def test_a_program_does_not_hear_signals_that_are_meant_for_this_one():
    """Ctrl-C goes to a whole group of processes."""
    process = start((sys.executable, "-c", "import time; time.sleep(600)"), os.environ)
    try:
        assert os.getpgid(process.pid) != os.getpgid(0)
    finally:
        end(process)


def test_a_program_that_does_not_listen_is_ended_all_the_same(monkeypatch, tmp_path):
    monkeypatch.setattr("polyclinic.engine.flower.processes.GRACE", 0.5)
    ready = tmp_path / "ready"
    deaf = (
        "import pathlib, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
        f"pathlib.Path({str(ready)!r}).touch(); time.sleep(300)"
    )
    process = start((sys.executable, "-c", deaf), os.environ)
    while not ready.exists():
        assert process.poll() is None
        time.sleep(0.02)
    end(process)
    assert process.returncode == -signal.SIGKILL


def test_ports_are_free_until_somebody_listens():
    import socket

    port = free_port()
    assert not listens("127.0.0.1", port)
    with socket.socket() as door:
        door.bind(("127.0.0.1", port))
        door.listen()
        assert listens("127.0.0.1", port)


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux to end children")
def test_programs_end_with_a_killed_parent():
    code = (
        "import os, sys, time; from polyclinic.engine.flower.processes import start;"
        "print(start((sys.executable, '-c', 'import time; time.sleep(600)'), os.environ).pid,"
        " flush=True); time.sleep(600)"
    )
    import subprocess

    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as parent:
        child = int(parent.stdout.readline())
        parent.kill()
    end_at = time.monotonic() + 120
    while _command(child):
        assert time.monotonic() < end_at
        time.sleep(0.1)


def _children() -> list[int]:
    from pathlib import Path

    own = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == os.getpid():
            own.append(int(folder.name))
    return own


def _command(pid: int) -> str:
    from pathlib import Path

    try:
        return (Path("/proc") / str(pid) / "cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


def test_a_dead_process_that_nobody_asked_about_is_not_alive():
    process = subprocess.Popen([sys.executable, "-c", ""])
    assert alive(os.getpid())
    wait_until(lambda: not alive(process.pid))
    process.wait()
    assert not alive(process.pid)
