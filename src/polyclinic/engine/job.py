"""Another process that does runs of a study, one after the other: `Job` is its owner's side.

Orders go in and events come out; what the process prints goes to standard error.
"""

import os
import signal
import subprocess
import sys
import tomllib
import traceback
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from polyclinic.catalog import installed
from polyclinic.config import ConfigError, Study, read_study, to_toml
from polyclinic.engine.local import LocalEngine
from polyclinic.engine.loop import Event
from polyclinic.engine.parents import end_with, end_with_parent
from polyclinic.engine.run import Run
from polyclinic.engine.study import do_run
from polyclinic.runs import RunError, RunFolder

_START = "from polyclinic.engine.job import work; work()"


@dataclass(frozen=True)
class Order:
    """A run as another process can do it: by its settings alone."""

    settings: str
    swept: dict[str, Any]
    folder: Path
    fresh: bool

    def run(self) -> Run:
        """The run itself, all names looked up anew."""
        study = _read(self.settings)
        choice = study.method[0].model_copy(update={"swept": self.swept})
        return Run(choice, study.seeds[0], RunFolder(self.folder), study)


class Job:
    """A process that does runs on this machine, each with its share of the cores."""

    def __init__(self, splits_folder: Path | None, jobs: int) -> None:
        self.connection, theirs = Pipe()
        with theirs:
            self.process = subprocess.Popen(  # noqa: S603 (only ourselves)
                [sys.executable, "-c", _START, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=2,
                pass_fds=[theirs.fileno()],
            )
        self._send((splits_folder, jobs))

    def do(self, run: Run, *, fresh: bool) -> Iterator[Event]:
        """One run, event by event; a RunError tells why it failed."""
        self._send(Order(to_toml(run.study), dict(run.choice.swept), run.folder.path, fresh))
        while (told := self._received()) is not None:
            if isinstance(told, str):
                raise RunError(told)
            yield told

    @property
    def alive(self) -> bool:
        """Whether it can do another run."""
        return self.process.poll() is None

    def close(self) -> None:
        """End it, whatever it is doing: finished rounds are safe."""
        self.process.kill()
        self.process.wait()

    def _send(self, what: object) -> None:
        try:
            self.connection.send(what)
        except OSError:
            raise RunError(self._end()) from None

    def _received(self) -> Event | str | None:
        try:
            told: Event | str | None = self.connection.recv()
        except (EOFError, OSError):
            raise RunError(self._end()) from None
        return told

    def _end(self) -> str:
        code = self.process.wait()
        if code == -signal.SIGKILL:
            return "its process was killed, perhaps for want of memory: try fewer --jobs"
        return f"its process ended with {signal.Signals(-code).name if code < 0 else code}"


def reason(error: Exception) -> str:
    """Why a run failed, in a sentence; of what is no mistake of the user the trace is printed."""
    if isinstance(error, ValueError):
        return str(error)
    traceback.print_exception(error)
    return f"{type(error).__name__}: {error}"


def others_can(run: Run) -> bool:
    """Whether another process finds by name all that the run needs."""
    text = to_toml(run.study)
    try:
        return to_toml(_read(text)) == text
    except ConfigError:
        return False


def work() -> None:  # pragma: no cover (in the new process)
    """What the new process does: runs as ordered, until its owner is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # its owner is told, too, and ends it
    end_with_parent()
    end_with(os.getppid())
    owner = Connection(int(sys.argv[1]))
    splits_folder, jobs = owner.recv()
    engine = LocalEngine(splits_folder, jobs=jobs)
    with suppress(EOFError):
        while True:
            owner.send(_fulfil(owner.recv(), engine, owner))


def _fulfil(order: Order, engine: LocalEngine, owner: Connection) -> str | None:
    # pragma: no cover (in the new process)
    try:
        for event in do_run(order.run(), engine, fresh=order.fresh):
            owner.send(event)
    except Exception as error:  # noqa: BLE001 (whatever it is, the next run may work)
        return reason(error)
    return None


def _read(settings: str) -> Study:
    content = tomllib.loads(settings)
    return read_study(content, installed(), source="the settings of a run", beside=Path())
