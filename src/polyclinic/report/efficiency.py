"""What each method costs in parameters, bytes and time, as the papers' tables of efficiency."""

import math

import numpy as np

from polyclinic.report.costs import MethodCost, method_costs
from polyclinic.report.reading import Comparison, MethodRuns
from polyclinic.report.sheets import Entry, Sheet
from polyclinic.report.words import duration, size

HEADS = (
    "Method",
    "Parameters (M)",
    "Up per site and round",
    "Down per site and round",
    "Traffic of a run",
    "After the rounds",
    "Seconds a round",
    "Seconds after",
    "ms an image",
    "Images per second",
)


def efficiency(comparison: Comparison) -> Sheet | None:
    """A row for each method of which a round was written; None before that."""
    costs = {cost.title: cost for cost in method_costs(comparison)}
    rows = tuple(
        _row(method, costs[method.title], len(comparison.sites))
        for method in comparison.methods
        if method.title in costs
    )
    if not rows:
        return None
    return Sheet(
        name="efficiency",
        title="Efficiency",
        caption="Parameters of a site's network in training. Bytes are those of tensors and "
        "numbers in messages, the mean over sites, rounds and runs; a run's traffic is of all "
        "sites, both ways. After the rounds come finalizing, later stages and finishing steps. "
        "Seconds are work of all sites one after another, a round's the middle one of the rounds; "
        "an image's are measured with the final models, at most twelve at once, on the machine of "
        "the run. Rounds that were trained once for several runs count in each, as they were "
        "timed.",
        heads=HEADS,
        rows=rows,
    )


def _row(method: MethodRuns, cost: MethodCost, sites: int) -> tuple[Entry, ...]:
    parameters = method.runs[0].about.parameters
    runs = [run for run in method.runs if run.rounds]
    last = [run.planned_rounds or math.inf for run in runs]
    after = [
        [line for line in run.rounds if line.round > end]
        for run, end in zip(runs, last, strict=True)
    ]
    later = float(np.mean([sum(line.up + line.down for line in lines) for lines in after]))
    seconds = float(np.mean([sum(line.seconds for line in lines) for lines in after]))
    times = [t for run in runs if run.end for t in run.end.predicting.values()]
    image = float(np.mean(times)) if times else math.nan
    return (
        Entry(method.title),
        Entry(f"{parameters / 1e6:.3f}", parameters),
        _bytes(cost.whole.up_per_round / sites),
        _bytes(cost.whole.down_per_round / sites),
        _bytes(cost.whole.total_bytes),
        _bytes(later),
        Entry(duration(cost.whole.seconds_per_round), cost.whole.seconds_per_round),
        Entry(duration(seconds), seconds),
        Entry("–" if math.isnan(image) else f"{1000 * image:.2f}", 1000 * image),
        Entry("–" if math.isnan(image) else f"{1 / image:.0f}", 1 / image),
    )


def _bytes(count: float) -> Entry:
    return Entry(size(count), count)
