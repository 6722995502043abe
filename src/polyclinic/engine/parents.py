"""Processes that must not outlive another one."""

import ctypes
import os
import signal
import sys
import time
from threading import Thread

from polyclinic.runs.lock import alive

_DIE_WITH_PARENT = 1  # Linux's PR_SET_PDEATHSIG


def end_with_parent() -> None:  # pragma: no cover (in the new process)
    """Let this process end when its parent does, even if that one is killed (on Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGTERM)


def end_with(pid: int) -> None:
    """Let this process end soon after that one does, whatever it is waiting for then."""

    def watch() -> None:  # pragma: no cover (ends the process)
        while alive(pid):
            time.sleep(2)
        os._exit(1)

    Thread(target=watch, daemon=True).start()
