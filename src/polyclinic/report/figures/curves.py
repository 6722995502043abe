"""Round by round: validation scores, training losses, bytes and seconds."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from polyclinic.report.costs import travelled
from polyclinic.report.figures.style import (
    WIDTH,
    Drawing,
    Margins,
    canvas,
    count_rounds,
    marker,
    panels,
    quiet_title,
    style,
    to_data_uri,
)
from polyclinic.report.measures import Measure, measure
from polyclinic.report.reading import Comparison, MethodRuns, Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes


_MOST_COLUMNS = 5
Curve = Mapping[int, float]  # round → value


def validation_figure(comparison: Comparison) -> Drawing | None:
    """The validation score per round, as the mean over sites; None where nothing was scored."""
    curves = {
        method.title: [
            _mean(_validation_curve(run, site) for site in comparison.sites) for run in method.runs
        ]
        for method in comparison.methods
    }
    return _single(curves, comparison, _validation_label(comparison), choices=True)


def other_curves(comparison: Comparison) -> list[tuple[str, Drawing]]:
    """What else was scored round by round: other metrics of validation, and test cases."""
    pairs = dict.fromkeys(pair for run in comparison.runs for pair in run.curves)
    main = {(run.validation_metric, "val") for run in comparison.runs}
    found = []
    for metric, split in pairs:
        if (metric, split) in main:
            continue
        how = comparison.measure(metric)
        curves = {
            method.title: [
                _mean(
                    {n: how.factor * v for n, v in run.curve(metric, split, site).items()}
                    for site in comparison.sites
                )
                for run in method.runs
            ]
            for method in comparison.methods
        }
        named = "TEST" if split == "watch" else "Validation"
        title = f"{named} {how.title_with_unit}"
        drawing = _single(curves, comparison, title, choices=False)
        if drawing:
            found.append((title, drawing))
    return found


def loss_figure(comparison: Comparison) -> Drawing | None:
    """The training loss per round, as the mean over sites; None where there is none."""
    curves = {method.title: [_losses(run) for run in method.runs] for method in comparison.methods}
    return _single(curves, comparison, "Training loss", choices=False)


def site_figure(comparison: Comparison) -> Drawing | None:
    """The validation score per round in one panel per site; None where nothing was scored."""
    if not any(run.validated for run in comparison.runs):
        return None
    return _by_site(comparison, _validation_curve)


def watched_by_site(comparison: Comparison) -> list[tuple[str, Drawing]]:
    """Each metric of test cases that was looked at while training, in one panel per site."""
    watched = dict.fromkeys(m for run in comparison.runs for m, s in run.curves if s == "watch")

    def figure(how: Measure) -> Drawing:
        def curve(run: Run, site: str) -> Curve:
            found = run.curve(how.name, "watch", site)
            return {number: how.factor * value for number, value in found.items()}

        return _by_site(comparison, curve)

    measures = map(comparison.measure, watched)
    return [(f"TEST {how.title_with_unit}", figure(how)) for how in measures]


def _by_site(comparison: Comparison, curve: Callable[[Run, str], Curve]) -> Drawing:
    sites = comparison.shown_sites
    with panels(sites, _MOST_COLUMNS, 2.4) as (figure, found):
        for panel, site in zip(found, sites, strict=True):
            for index, method in enumerate(comparison.methods):
                _draw(panel, [curve(run, site) for run in method.runs], index)
            count_rounds(panel)
            panel.label_outer()
        return to_data_uri(figure)


def _validation_label(comparison: Comparison) -> str:
    metrics = [run.validation_metric for run in comparison.runs]
    how = comparison.measure(next(filter(None, metrics), "dice"))
    return f"Validation {how.title_with_unit}"


def _validation_curve(run: Run, site: str) -> Curve:
    factor = measure(run.validation_metric or "", [run.about]).factor
    return {number: factor * value for number, value in run.validated.get(site, {}).items()}


def _losses(run: Run) -> Curve:
    """Of the stage a round ends with: one before it may learn something else."""
    last = {line.round: line.stage for line in run.round_lines}
    found = defaultdict(list)
    for line in run.round_lines:
        if math.isfinite(line.loss) and line.stage == last[line.round]:
            found[line.round].append(line.loss)
    return {number: float(np.mean(values)) for number, values in found.items()}


def _mean(curves: Iterable[Curve]) -> Curve:
    found = defaultdict(list)
    for curve in curves:
        for number, value in curve.items():
            found[number].append(value)
    return {number: float(np.mean(values)) for number, values in sorted(found.items())}


def _single(
    curves: Mapping[str, list[Curve]], comparison: Comparison, name: str, *, choices: bool
) -> Drawing | None:
    if not any(curve for each in curves.values() for curve in each):
        return None
    with canvas(1, 1, (WIDTH / 2 - 0.1, 3.1)) as (figure, axes):
        panel = axes[0][0]
        for index, method in enumerate(comparison.methods):
            _draw(panel, curves[method.title], index)
            if choices:
                _mark_choice(panel, method, curves[method.title], index)
        quiet_title(panel, f"{name}, mean over sites")
        count_rounds(panel)
        return to_data_uri(figure)


def _draw(panel: "Axes", curves: list[Curve], index: int) -> None:
    """The mean over runs, with the range of the runs behind it."""
    mean = _mean(curves)
    if not mean:
        return
    look = style(index)
    numbers = list(mean)
    few = len(numbers) <= 12
    panel.plot(numbers, list(mean.values()), marker="o" if few else None, ms=3.5, **look.line)
    if sum(1 for curve in curves if curve) > 1:
        known = [[curve[number] for curve in curves if number in curve] for number in numbers]
        low, high = [min(values) for values in known], [max(values) for values in known]
        panel.fill_between(numbers, low, high, color=look.colour, alpha=0.14, linewidth=0)


def _mark_choice(panel: "Axes", method: MethodRuns, curves: list[Curve], index: int) -> None:
    colour = style(index).colour
    for run, curve in zip(method.runs, curves, strict=True):
        if run.end and run.end.chosen_round in curve:
            number = run.end.chosen_round
            panel.plot(number, curve[number], "o", ms=7.5, mfc="white", mec=colour, mew=1.8)


def traffic_figure(comparison: Comparison) -> Drawing | None:
    """Bytes so far and seconds of each round, of all sites together; None before a first round."""
    if not any(run.round_lines for run in comparison.runs):
        return None
    costs = [_per_round(method.runs[0], comparison.sites) for method in comparison.methods]
    most = max(sum(sent) for _, sent, _ in costs)
    unit, name = (1e9, "GB") if most >= 1e9 else (1e6, "MB")
    with canvas(1, 2, (WIDTH, 2.9), Margins(across=0.7)) as (figure, axes):
        traffic, work = axes[0]
        quiet_title(traffic, f"Traffic so far, all sites, both ways ({name})")
        quiet_title(work, "Work of all sites in a round (seconds)")
        for index, (numbers, sent, seconds) in enumerate(costs):
            look = {"marker": marker(index) if len(numbers) == 1 else None, **style(index).line}
            traffic.plot(numbers, np.cumsum(sent) / unit, **look)
            work.plot(numbers, seconds, **look)
        for panel in (traffic, work):
            panel.set_ylim(0, 1.06 * panel.get_ylim()[1])
            count_rounds(panel)
        return to_data_uri(figure)


def _per_round(run: Run, sites: Sequence[str]) -> tuple[list[int], list[int], list[float]]:
    """The rounds with the bytes and the seconds of each."""
    sent: dict[int, int] = defaultdict(int)
    seconds: dict[int, float] = defaultdict(float)
    last = run.planned_rounds or math.inf
    for line in travelled(run, sites):
        if 1 <= line.round <= last:
            sent[line.round] += line.up + line.down
            seconds[line.round] += line.seconds
    numbers = sorted(seconds)
    return numbers, [sent[each] for each in numbers], [seconds[each] for each in numbers]
