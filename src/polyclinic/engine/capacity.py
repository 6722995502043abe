"""What this machine can carry: its cores, and the memory that is free."""

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

try:
    import resource
except ImportError:  # pragma: no cover (Windows)
    resource = None  # type: ignore[assignment]

START = 10.0  # seconds that work takes before other processes, which need some to start, help
_LIMITS = Path("/sys/fs/cgroup")  # what a container may take
_MEMORY = Path("/proc/meminfo")


def cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1  # pragma: no cover (not Linux)


def own_memory() -> int:
    """The most bytes that this process ever had at once; 0 where nobody can tell."""
    if resource is None:  # pragma: no cover (Windows)
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def more_like_this(*, taken: int | None = None, free: int | None = None) -> int | None:
    """How many more processes as large as this one memory carries; None where nobody can tell."""
    each = own_memory() if taken is None else taken
    there = min(_free(), default=0) if free is None else free
    return there // each if each and there else None


def helpers_wanted(most: int, *, at_once: bool) -> int:
    """How many processes to start: what memory carries if each grows as large as this one has.

    Who asks for them at once gets them all.
    """
    room = None if at_once else more_like_this()
    return most if room is None else min(most, room)


def _free() -> Iterator[int]:
    with suppress(OSError, ValueError, StopIteration):
        lines = _MEMORY.read_text().splitlines()
        yield 1024 * int(next(line for line in lines if line.startswith("MemAvail")).split()[1])
    with suppress(OSError, ValueError):
        limit = int((_LIMITS / "memory.max").read_text())
        yield max(1, limit - int((_LIMITS / "memory.current").read_text()))
