"""One process at a time in a run folder."""

import fcntl
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from polyclinic.runs.files import RunError, clear_errors


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock file `path`; a second process is refused, a dead one's lock is taken over."""
    descriptor = _acquire(path)
    try:
        with clear_errors(path):
            _sign(descriptor)
        yield
    finally:
        os.ftruncate(descriptor, 0)
        # Said aloud because a forked worker may still hold a copy of the descriptor.
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


def alive(pid: int) -> bool:
    """Whether a process with this number runs on this machine."""
    try:
        os.kill(pid, 0)
        # A dead process that its parent has not asked about yet still has its number.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError as error:
        return not isinstance(error, ProcessLookupError)


def _acquire(path: Path) -> int:
    while True:
        with clear_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        if _take(descriptor, path):
            return descriptor
        os.close(descriptor)


def _take(descriptor: int, path: Path) -> bool:
    """Whether the lock is ours now; False means that the file was replaced: open it again."""
    try:
        with clear_errors(path):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                _refuse_unless_dead(descriptor, path)
                path.unlink(missing_ok=True)
                return False
            return path.exists() and os.path.samestat(os.fstat(descriptor), path.stat())
    except RunError:
        os.close(descriptor)
        raise


def _refuse_unless_dead(descriptor: int, path: Path) -> None:
    """Workers may outlive their killed process and keep its lock; that one does not count."""
    try:
        holder = json.loads(os.pread(descriptor, 4096, 0))
        pid, host, since = int(holder["pid"]), str(holder["host"]), str(holder["since"])
    except (ValueError, KeyError, TypeError):
        raise RunError(f"{path.parent} is in use by another process") from None
    if host != socket.gethostname() or alive(pid):
        raise RunError(
            f"{path.parent} is in use by process {pid} on {host} since {since}; "
            "wait for it, or stop it and continue with --resume"
        )


def _sign(descriptor: int) -> None:
    since = datetime.now().astimezone().isoformat(timespec="seconds")
    holder = {"pid": os.getpid(), "host": socket.gethostname(), "since": since}
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, json.dumps(holder).encode(), 0)
