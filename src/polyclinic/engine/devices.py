"""What a process works with on this machine: device, threads, cores, and memory that is free."""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import torch

from polyclinic.config.mistakes import Mistake
from polyclinic.config.printing import literal
from polyclinic.runs import RunError

try:
    import resource
except ImportError:  # pragma: no cover (Windows)
    resource = None  # type: ignore[assignment]

_LIMITS = Path("/sys/fs/cgroup")  # what a container may take
_MEMORY = Path("/proc/meminfo")


def device_of(name: str, setting: str = "engine.device") -> torch.device:
    """The device that a setting means on this machine; an error says which ones there are."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    there = list(_present())
    if name not in there:
        shown = ("auto", *there)
        raise RunError(str(Mistake(setting, _reason(name), literal(name), shown)))
    return torch.device(name)


def threads_of(
    told: int,
    workers: int = 1,
    *,
    there: int | None = None,
    environment: Mapping[str, str] = os.environ,
) -> int:
    """Threads of each of so many processes: as told, else OMP_NUM_THREADS, else all cores shared.

    What OpenMP itself would ignore in that variable is ignored.
    """
    first = environment.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    wanted = int(first) if first.isdecimal() else 0
    return told or wanted or max(1, (there or cores()) // workers)


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


def _present() -> Iterator[str]:
    """The devices of this machine that torch can use."""
    yield "cpu"
    for name in ("cuda", "xpu"):
        kind = getattr(torch, name)
        if kind.is_available():
            yield name
            yield from (f"{name}:{number}" for number in range(kind.device_count()))
    if torch.backends.mps.is_available():
        yield "mps"


def _reason(name: str) -> str:
    if name.startswith("cuda") and torch.version.cuda is None:
        return f"torch {torch.__version__} was built without CUDA (docs/install.md has the cure)"
    return "this machine has no such device that torch could use"


def _free() -> Iterator[int]:
    with suppress(OSError, ValueError, StopIteration):
        lines = _MEMORY.read_text().splitlines()
        yield 1024 * int(next(line for line in lines if line.startswith("MemAvail")).split()[1])
    with suppress(OSError, ValueError):
        limit = int((_LIMITS / "memory.max").read_text())
        yield max(1, limit - int((_LIMITS / "memory.current").read_text()))
