"""How the values of a metric are printed and which of them are better."""

import math
from dataclasses import dataclass
from typing import Literal

from polyclinic.evaluation import METRICS

_TITLES = {"dice": "Dice", "iou": "IoU"}


@dataclass(frozen=True)
class Measure:
    """A metric as a reader meets it: ratios in percent, distances as they are."""

    name: str
    summary: str = ""
    better: Literal["higher", "lower"] | None = None
    unit: str = ""
    factor: float = 1.0

    @property
    def title(self) -> str:
        """The name as papers print it, of mine.py:area only what follows the file."""
        return _TITLES.get(self.name, self.name.rpartition(":")[2].upper())

    @property
    def title_with_unit(self) -> str:
        """The name with its unit in brackets, where it has one."""
        return f"{self.title} ({self.unit})" if self.unit else self.title

    @property
    def arrow(self) -> str:
        """Which way is better."""
        return {"higher": "↑", "lower": "↓", None: ""}[self.better]

    def text(self, value: float) -> str:
        """The value with two decimals; a dash where there is none."""
        return "–" if math.isnan(value) else f"{self.factor * value:.2f}"


def measure(name: str) -> Measure:
    """The measure of a metric; one that this version does not know is printed but never marked."""
    metric = METRICS.get(name)
    if metric is None:
        return Measure(name)
    if metric.better == "higher" and not metric.unit:
        return Measure(name, metric.summary, metric.better, "%", 100.0)
    return Measure(name, metric.summary, metric.better, metric.unit)
