"""How the values of a metric are printed and which of them are better."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from polyclinic.evaluation import METRICS
from polyclinic.runs import About


@dataclass(frozen=True)
class Measure:
    """A metric as a reader meets it: shares in per cent, all else as it is."""

    name: str
    title: str
    summary: str = ""
    better: Literal["higher", "lower"] | None = None
    unit: str = ""
    factor: float = 1.0

    @property
    def title_with_unit(self) -> str:
        """The title with its unit in brackets, where it has one."""
        return f"{self.title} ({self.unit})" if self.unit else self.title

    @property
    def arrow(self) -> str:
        """Which way is better."""
        return {"higher": "↑", "lower": "↓", None: ""}[self.better]

    def text(self, value: float) -> str:
        """The value with two decimals; a dash where there is none."""
        return "–" if math.isnan(value) else f"{self.factor * value:.2f}"


def measure(name: str, runs: Iterable[About]) -> Measure:
    """The measure of a metric as the runs describe it, or else this version's table.

    A metric that neither describes is printed under its name and never marked.
    """
    told = [about.metrics[name] for about in runs if name in about.metrics]
    metric = told[0] if told else METRICS.get(name)
    if metric is None:
        return Measure(name, name)
    unit, factor = (metric.unit, 1.0) if metric.unit else ("%", 100.0)
    return Measure(name, metric.title, metric.summary, metric.better, unit, factor)
