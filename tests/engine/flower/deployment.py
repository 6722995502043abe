"""A whole federation of real processes on the loopback interface, TLS and keys as deployed."""

from __future__ import annotations

import os
import signal
import subprocess
import sysconfig
import time
from contextlib import suppress
from pathlib import Path

from polyclinic.config import Study, to_toml
from polyclinic.engine.flower import commands
from polyclinic.engine.flower.deploy.folder import INNER_PORT, Deployment, write_deployment
from polyclinic.engine.flower.processes import free_port, listens
from polyclinic.engine.study import task_of
from tests.engine.flower.hospitals import Hospitals

POLYCLINIC = str(Path(sysconfig.get_path("scripts")) / "polyclinic")


class Federation:
    """A coordinator's folder and one for each hospital, and the processes started from them."""

    def __init__(self, hospitals: Hospitals) -> None:
        self.hospitals = hospitals
        self.port = free_port()
        self.folder = hospitals.folder
        self.deployment = Deployment(self.folder / "deployment")
        study = hospitals.study()
        address = f"127.0.0.1:{self.port}"
        write_deployment(study, task_of(study), address, self.deployment, days=30)
        self.coordinator = self.deployment.coordinator / "COORDINATOR.toml"
        _edit(self.coordinator, {f"port = {INNER_PORT}": f"port = {self.port}"})
        for name in hospitals.names:
            (self.deployment.site(name) / "data").symlink_to(hospitals.folder / "data" / name)
            self.allow(name, {"threads = 0": "threads = 1", "cases = 5": "cases = 1"})
            self.allow(name, {'methods = ["fedavg"]': 'methods = ["*"]'})
        self.running: dict[str, subprocess.Popen] = {}

    def allow(self, name: str, changes: dict[str, str]) -> None:
        """Edit a hospital's SITE.toml."""
        _edit(self.deployment.site(name) / "SITE.toml", changes)

    def state(self, name: str) -> Path:
        return self.deployment.site(name) / "state"

    def start_superlink(self) -> None:
        """A SuperLink of its own, which several studies can join."""
        keys = self.deployment.coordinator / "certificates"
        certificates = commands.Certificates(
            keys / "ca.crt", keys / "server.crt", keys / "server.key"
        )
        command = commands.superlink(
            "127.0.0.1", self.port, self.folder / "superlink.db", certificates
        )
        self._start("superlink", command, commands.environment(self.folder / "flower"))
        wait_until(lambda: listens("127.0.0.1", self.port))

    def start_site(self, name: str) -> None:
        file = self.deployment.site(name) / "SITE.toml"
        self._start(name, (POLYCLINIC, "site", str(file)), dict(os.environ))

    def start_server(self, study: Study, *options: str) -> subprocess.Popen:
        """The coordinator's command under way."""
        file = self.folder / f"{study.name}.toml"
        file.write_text(to_toml(study))
        command = (POLYCLINIC, "server", str(file), "--coordinator", str(self.coordinator))
        runs = ("--runs", str(self.folder / "runs"))
        return self._start("server", (*command, *runs, *options), dict(os.environ))

    def serve(self, study: Study, *options: str, seconds: float = 600) -> str:
        """Run a study to its end; gives what the coordinator said."""
        running = self.start_server(study, *options)
        code = running.wait(seconds)
        text = self.log("server")
        assert code == 0, text
        return text

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def kill(self, name: str, how: int = signal.SIGKILL) -> None:
        """End a process and everything it started."""
        process = self.running.pop(name)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, how)
        process.wait(30)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)

    def close(self) -> None:
        for name in list(self.running):
            self.kill(name, signal.SIGTERM)

    def _start(self, name: str, command, environment: dict[str, str]) -> subprocess.Popen:
        one_thread = {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
        with (self.folder / f"{name}.log").open("ab") as output:
            self.running[name] = subprocess.Popen(
                command,
                stdout=output,
                stderr=output,
                env={**environment, **one_thread},
                start_new_session=True,
            )
        return self.running[name]


def wait_until(happened, seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.2)


def _edit(file: Path, changes: dict[str, str]) -> None:
    text = file.read_text()
    for old, new in changes.items():
        assert old in text, old
        text = text.replace(old, new)
    file.write_text(text)
