"""Processes that must not outlive the one that started them."""

import ctypes
import signal
import sys

_DIE_WITH_PARENT = 1  # Linux's PR_SET_PDEATHSIG


def end_with_parent() -> None:  # pragma: no cover (in the new process)
    """Let this process end when its parent does, even if that one is killed (on Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGTERM)
