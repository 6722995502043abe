"""Another process of this machine that helps, and a run as it can be told to one.

It is started as a plain command, so that no script of a user is executed again; orders go in and
answers come out, and what it prints goes to standard error.
"""

import os
import pickle
import signal
import subprocess
import sys
import tomllib
import traceback
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from polyclinic.catalog import installed
from polyclinic.config import ConfigError, Study, read_study, to_toml
from polyclinic.engine.parents import end_with, end_with_parent
from polyclinic.engine.run import Run
from polyclinic.runs import RunError, RunFolder


@dataclass(frozen=True)
class Order:
    """A run as another process can do it: by its settings alone."""

    settings: str
    swept: dict[str, Any]
    folder: Path
    fresh: bool = False

    @classmethod
    def of(cls, run: Run, *, fresh: bool = False) -> "Order":
        """The order for a run."""
        return cls(to_toml(run.study), dict(run.choice.swept), run.folder.path, fresh)

    def run(self) -> Run:
        """The run itself, all names looked up anew."""
        study = _read(self.settings)
        choice = study.method[0].model_copy(update={"swept": self.swept})
        return Run(choice, study.seeds[0], RunFolder(self.folder), study)


def others_can(run: Run) -> bool:
    """Whether another process finds by name all that the run needs."""
    text = to_toml(run.study)
    try:
        return to_toml(_read(text)) == text
    except ConfigError:
        return False


class OtherProcess:
    """The owner's side; `start` is the function that the process calls, as module:name."""

    def __init__(self, start: str, first: object) -> None:
        module, _, name = start.partition(":")
        self.connection, theirs = Pipe()
        with theirs:
            self.process = subprocess.Popen(  # noqa: S603 (only ourselves)
                [
                    sys.executable,
                    "-c",
                    f"from {module} import {name}; {name}()",
                    str(theirs.fileno()),
                ],
                stdin=subprocess.DEVNULL,
                stdout=2,
                pass_fds=[theirs.fileno()],
            )
        self.send(first)

    @property
    def alive(self) -> bool:
        """Whether it can do more."""
        return self.process.poll() is None

    def send(self, what: object) -> None:
        """Give an order."""
        try:
            send(self.connection, what)
        except OSError:
            raise RunError(self._end()) from None

    def received(self) -> Any:
        """The next answer; a RunError tells how the process ended without one."""
        try:
            return receive(self.connection)
        except (EOFError, OSError):
            raise RunError(self._end()) from None

    def close(self) -> None:
        """End it, whatever it is doing: finished rounds are safe."""
        self.process.kill()
        self.process.wait()

    def _end(self) -> str:
        code = self.process.wait()
        if code == -signal.SIGKILL:
            return "its process was killed, perhaps for want of memory: try fewer --jobs"
        return f"its process ended with {signal.Signals(-code).name if code < 0 else code}"


def owner_of_this() -> Connection:  # pragma: no cover (in the new process)
    """The connection to the process that started this one, which ends when that is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # its owner is told, too, and ends it
    end_with_parent()
    end_with(os.getppid())
    return Connection(int(sys.argv[1]))


def send(connection: Connection, what: object) -> None:
    """Send a copy: as a connection does it by itself, tensors would be shared."""
    connection.send_bytes(pickle.dumps(what, protocol=pickle.HIGHEST_PROTOCOL))


def receive(connection: Connection) -> Any:
    """What the other side sent."""
    return pickle.loads(connection.recv_bytes())  # noqa: S301 (only ourselves)


def reason(error: Exception) -> str:
    """Why a run failed, in a sentence; of what is no mistake of the user the trace is printed."""
    if isinstance(error, ValueError):
        return str(error)
    traceback.print_exception(error)
    return f"{type(error).__name__}: {error}"


def _read(settings: str) -> Study:
    content = tomllib.loads(settings)
    return read_study(content, installed(), source="the settings of a run", beside=Path())
