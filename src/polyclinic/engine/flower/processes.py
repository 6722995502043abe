"""Programs that are kept running for as long as this process lives, and not longer."""

import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from polyclinic.engine.parents import end_with_parent

SHORTEST, LONGEST = 1.0, 60.0  # seconds before a program is started again
GRACE = 15.0  # seconds between asking a program to end and ending it


@dataclass
class SupervisedProcess:
    """A program that is started again whenever it ends."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]
    say: Callable[[str], None]
    log: Path | None = None  # where its own words go, if not where this process's go
    process: subprocess.Popen[bytes] | None = None
    again: float = 0.0  # when to start it next
    pause: float = field(default=SHORTEST)
    started: float = 0.0

    def look(self) -> None:
        """Start the program if it does not run and it is time to."""
        now = time.monotonic()
        if self.process is not None and self.process.poll() is not None:
            # One that ran for a while begins with a short pause again.
            self.pause = SHORTEST if now - self.started > LONGEST else min(2 * self.pause, LONGEST)
            self.again = now + self.pause
            code = self.process.returncode
            where = f" (see {self.log})" if self.log else ""
            self.say(
                f"{self.name} ended ({code}){where}; it starts again in {self.pause:.0f} seconds"
            )
            self.process = None
        if self.process is None and now >= self.again:
            self.started = now
            self.process = start(self.command, self.environment, self.log)

    def stop(self) -> None:
        """End the program, politely first."""
        if self.process is not None:
            end(self.process)


def start(
    command: Sequence[str], environment: Mapping[str, str], log: Path | None = None
) -> subprocess.Popen[bytes]:
    """Start a program that ends when this process does, even if this one is killed."""
    with log.open("ab") if log else nullcontext() as words:
        return subprocess.Popen(  # noqa: S603 (our own command lines)
            command,
            env=dict(environment),
            preexec_fn=end_with_parent,
            # Ctrl-C is for this process, which ends the program: a second signal would cut its
            # farewell short, and Flower refuses a site that left without one for a minute.
            process_group=0,
            stdin=subprocess.DEVNULL,
            stdout=words,
            stderr=words,
        )


def end(process: subprocess.Popen[bytes]) -> None:
    """End a program, politely first."""
    process.terminate()
    try:
        process.wait(GRACE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def socket_path(state: Path) -> Path:
    """Where the worker of a site listens."""
    return state / "worker.sock"


def free_port() -> int:
    """A port on the loopback interface that nobody listens on."""
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        return int(door.getsockname()[1])


def listens(host: str, port: int) -> bool:
    """Whether somebody takes calls there."""
    try:
        with socket.create_connection((host, port), timeout=2):
            return True
    except OSError:
        return False
