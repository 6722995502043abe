"""Speed, always as a ratio of two sides that take turns within one run."""

import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from statistics import median
from time import perf_counter
from typing import Any


@dataclass(frozen=True)
class Ratio:
    """Seconds of ours and of a reference for the same work; the target is reference over ours."""

    name: str
    ours: float
    reference: float
    target: float | None
    note: str = ""

    @property
    def times(self) -> float:
        """How many times faster than the reference ours is."""
        return self.reference / self.ours


def interleaved(functions: Mapping[str, Callable[[], Any]], repeats: int = 7) -> dict[str, float]:
    """Median seconds of each function, called in turns after one call that is not counted."""
    for function in functions.values():
        function()
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(repeats):
        for name, function in functions.items():
            start = perf_counter()
            function()
            seconds[name].append(perf_counter() - start)
    return {name: median(times) for name, times in seconds.items()}


def in_processes(
    module: str, sides: Sequence[str], argument: str, repeats: int = 9
) -> dict[str, float]:
    """Median seconds of a turn of each side of a module, each in a process of its own.

    The allocator's settings belong to a process. While one side works, the others wait for their
    next line of input.
    """
    with ExitStack() as stack:
        processes = {side: stack.enter_context(_start(module, side, argument)) for side in sides}
        seconds = interleaved({s: partial(_turn, p) for s, p in processes.items()}, repeats)
        for process in processes.values():
            process.communicate()
    return seconds


def take_turns(work: Callable[[], Any]) -> None:
    """Work once for every line of input: the part of a side's process."""
    work()
    for _ in sys.stdin:
        work()
        print("done", flush=True)


def _start(module: str, side: str, argument: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", module, side, argument]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, bufsize=1)


def _turn(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("turn\n")
    assert process.stdout.readline() == "done\n", "a side of the comparison died"
