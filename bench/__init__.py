"""Speed, always as a ratio measured within one process."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
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
