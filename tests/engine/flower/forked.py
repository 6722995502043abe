"""Coordinator and sites as processes of their own without Flower between them, to be killed."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from itertools import count
from multiprocessing.context import ForkProcess
from pathlib import Path

from polyclinic.config import Study
from polyclinic.engine.flower.processes import socket_path
from polyclinic.engine.flower.site_app import ask_worker
from polyclinic.engine.flower.site_service import SiteService
from polyclinic.engine.flower.transport import Failure
from polyclinic.engine.flower.worker import listening, serve
from polyclinic.engine.process import prepare_process
from tests.engine.flower.hospitals import Hospitals

FORK = multiprocessing.get_context("fork")
SERVER = "server"


class SocketLink:
    """A link to the sockets of sites' workers, which are asked one after another."""

    def __init__(self, sockets: dict[str, Path]) -> None:
        self.sockets = dict(enumerate(sockets.items(), start=101))
        self.replies: dict[str, bytes | Failure] = {}
        self.numbers = count(1)

    def machines(self):
        return {number: name for number, (name, _) in self.sockets.items()}

    def send(self, payloads, seconds):
        return [self._send(machine, payload) for machine, payload in payloads.items()]

    def receive(self, messages):
        return [(each, self.replies.pop(each)) for each in messages if each in self.replies]

    def _send(self, machine: int, payload: bytes) -> str:
        number = f"message-{next(self.numbers)}"
        try:
            self.replies[number] = ask_worker(self.sockets[machine][1], payload)
        except OSError as error:
            self.replies[number] = Failure(str(error))
        return number


class ForkedFederation:
    """The processes of one study, which can be killed and started again."""

    def __init__(self, hospitals: Hospitals, study: Study, name: str) -> None:
        self.hospitals, self.study, self.name = hospitals, study, name
        self.state = f"state-{name}"
        self.files = {each: hospitals.site_file(each, state=self.state) for each in hospitals.names}
        self.running = {each: self._start(each) for each in (*hospitals.names, SERVER)}

    def ended(self, seconds: float) -> bool:
        """Whether the study has come to its end, after waiting for so long at most."""
        server = self.running[SERVER]
        server.join(seconds)
        assert server.exitcode in (None, 0), "the study stopped with an error"
        return server.exitcode == 0

    def kill(self, victim: str) -> None:
        """End a process at once, wherever it is, and start it anew."""
        self.running[victim].kill()
        self.running[victim].join()
        self.running[victim] = self._start(victim)

    def close(self) -> None:
        for process in self.running.values():
            process.kill()
            process.join()

    def _start(self, name: str) -> ForkProcess:
        work: Callable[[], None] = self._host if name == SERVER else lambda: self._work(name)
        process = FORK.Process(target=work)
        process.start()
        return process

    def _work(self, name: str) -> None:
        service = SiteService(self.files[name], self.hospitals.tables)
        with listening(socket_path(self.files[name].state)) as door:
            while True:
                serve(door, service)

    def _host(self) -> None:
        prepare_process(1)
        link = SocketLink({name: socket_path(file.state) for name, file in self.files.items()})
        root = f"runs-{self.name}"
        self.hospitals.host(self.study, link, root=root, resume=True, watch=lambda run, event: None)
