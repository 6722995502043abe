"""The device and the threads that a process of this machine works with."""

import os
from collections.abc import Iterator, Mapping

import torch

from polyclinic.config.mistakes import Mistake
from polyclinic.config.printing import literal
from polyclinic.engine import capacity
from polyclinic.runs import RunError


def device_of(name: str, setting: str = "engine.device") -> torch.device:
    """The device that a setting means on this machine; an error says which ones there are."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    there = list(_present())
    if name not in there:
        shown = ("auto", *there)
        raise RunError(str(Mistake(setting, _reason(name), literal(name), shown)))
    return torch.device(name)


def workers_of(
    told: int,
    threads: int,
    jobs: int,
    sites: int,
    *,
    cores: int | None = None,
    environment: Mapping[str, str] = os.environ,
) -> int:
    """Processes that a run's sites are divided among, where a machine does so many runs at once.

    As told, else as many as its cores give the threads asked for, or one thread each.
    """
    each = jobs * max(1, threads or _from(environment))
    return told or max(1, min((cores or capacity.cores()) // each, sites))


def threads_of(
    told: int,
    workers: int = 1,
    *,
    cores: int | None = None,
    environment: Mapping[str, str] = os.environ,
) -> int:
    """Threads of each of so many processes: as told, else OMP_NUM_THREADS, else all cores shared.

    What OpenMP itself would ignore in that variable is ignored.
    """
    return told or _from(environment) or max(1, (cores or capacity.cores()) // workers)


def _from(environment: Mapping[str, str]) -> int:
    """OMP_NUM_THREADS, or 0."""
    first = environment.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return int(first) if first.isdecimal() else 0


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
