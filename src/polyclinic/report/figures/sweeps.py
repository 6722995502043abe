"""A metric against a setting that was varied, and against what a method costs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from polyclinic.evaluation.statistics import OVERALL
from polyclinic.report.costs import method_costs
from polyclinic.report.figures.style import (
    WIDTH,
    Drawing,
    Margins,
    canvas,
    marker,
    quiet_title,
    shortened,
    style,
    to_data_uri,
)
from polyclinic.report.reading import Comparison, MethodRuns
from polyclinic.report.settings import differing, of_methods, short, text_of

_MOST_FIGURES = 6


Lines = tuple[tuple[str, tuple[tuple[Any, MethodRuns], ...]], ...]
Settings = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Sweep:
    """One setting that alone tells some rows apart, with a line for each group of such rows."""

    setting: str
    lines: Lines
    figure: Drawing


def sweeps(comparison: Comparison) -> list[Sweep]:
    """A figure for each setting in which rows differ that are alike in all others."""
    methods = [method for method in comparison.methods if method.finished]
    titles = [method.title for method in methods]
    settings = dict(zip(titles, of_methods(methods), strict=True))
    found = []
    for key in differing(list(settings.values())) if methods and comparison.metrics else ():
        if key != "method.name":
            lines = _lines(key, methods, settings)
            if lines:
                found.append(Sweep(key, lines, _drawn(comparison, key, lines)))
    return found[:_MOST_FIGURES]


def _lines(key: str, methods: Sequence[MethodRuns], settings: Settings) -> Lines:
    """Rows that are alike but for this; what is named may have settings of its own beside it."""
    if key.endswith(".name"):
        section = key.removesuffix("name")
        own = {each for one in settings.values() for each in one if each.startswith(section)}
        lines = _grouped(key, own, methods, settings)
        values = [[value for value, _ in points] for _, points in lines]
        if all(len(each) == len(set(each)) for each in values):
            return lines
    return _grouped(key, {key}, methods, settings)


def _grouped(
    key: str, beside: set[str], methods: Sequence[MethodRuns], settings: Settings
) -> Lines:
    groups: dict[str, list[tuple[Any, MethodRuns]]] = {}
    for method in methods:
        own = settings[method.title]
        others = repr(sorted((k, v) for k, v in own.items() if k not in beside))
        if key in own:
            groups.setdefault(others, []).append((own[key], method))
    lines = [each for each in groups.values() if len({repr(value) for value, _ in each}) > 1]
    names = _names([settings[points[0][1].title] for points in lines], beside)
    return tuple(zip(names, map(tuple, map(_ordered, lines)), strict=True))


def _names(lines: Sequence[dict[str, Any]], beside: set[str]) -> list[str]:
    """Each line's method, with what sets it apart from other lines of the method."""
    names = []
    for own in lines:
        alike = [one for one in lines if one.get("method.name") == own.get("method.name")]
        told = [f"{short(k)}={text_of(own.get(k))}" for k in differing(alike, beside)]
        names.append(str(own.get("method.name", "")) + (f" ({', '.join(told)})" if told else ""))
    return names


def _ordered(points: list[tuple[Any, MethodRuns]]) -> list[tuple[Any, MethodRuns]]:
    numbers = all(_is_number(value) for value, _ in points)
    return sorted(points, key=lambda point: point[0]) if numbers else points


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _drawn(comparison: Comparison, key: str, lines: Sequence[tuple[str, Any]]) -> Drawing:
    metrics = comparison.metrics[:2]
    values = list(dict.fromkeys(value for _, points in lines for value, _ in points))
    numbers = all(map(_is_number, values))
    values = sorted(values) if numbers else values
    joined = {} if numbers or len(values) == 2 else {"linestyle": "none"}  # names have no order
    with canvas(1, len(metrics), (WIDTH, 2.9), Margins(across=0.7, right=1.6)) as (figure, axes):
        for panel, metric in zip(axes[0], metrics, strict=True):
            how = comparison.measure(metric)
            for index, (title, points) in enumerate(lines):
                places = [values.index(value) for value, _ in points]
                means, spreads = zip(*(_mean(m, metric) for _, m in points), strict=True)
                panel.errorbar(
                    places,
                    how.factor * np.array(means),
                    how.factor * np.array(spreads),
                    marker="o",
                    ms=5,
                    capsize=3,
                    label=_label(title, 22),
                    **style(index).line | joined,
                )
                each = [_site_means(method, metric, comparison.sites) for _, method in points]
                panel.plot(
                    places, how.factor * np.array(each), ".", color=style(index).colour, alpha=0.4
                )
            labels = [_label(_told(value)) for value in values]
            panel.set_xticks(range(len(values)), labels)
            panel.margins(x=0.12)
            panel.set_xlabel(short(key))
            quiet_title(panel, f"{how.title_with_unit}, mean over sites")
        axes[0][-1].legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
        return to_data_uri(figure)


def _told(value: Any) -> str:
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value) or "none"


def _label(value: str, longest: int = 14) -> str:
    """A value below its place, or a line's name: settings stand below what they are of."""
    return "\n".join(shortened(part, longest) for part in value.replace(" (", "\n(").split("\n"))


def _mean(method: MethodRuns, metric: str) -> tuple[float, float]:
    """The mean over runs of the mean over sites, and its deviation (0 of one run)."""
    found = [
        run.summaries[metric][OVERALL].average.mean
        for run in method.finished
        if metric in run.summaries
    ]
    if not found:
        return float("nan"), 0.0
    return float(np.mean(found)), float(np.std(found, ddof=1)) if len(found) > 1 else 0.0


def cost_figure(comparison: Comparison) -> Drawing | None:
    """The first metric of each method against the bytes of a run and the time of an image."""
    methods = [(n, m) for n, m in enumerate(comparison.methods) if m.finished]
    if len(methods) < 2 or not comparison.metrics:
        return None
    metric = comparison.metrics[0]
    how = comparison.measure(metric)
    costs = {cost.title: cost for cost in method_costs(comparison)}
    with canvas(1, 2, (WIDTH, 3.4), Margins(across=0.7, bottom=0.55)) as (figure, axes):
        sent, spent = axes[0]
        for index, method in methods:
            value = how.factor * _mean(method, metric)[0]
            look: dict[str, Any] = {
                "color": style(index).colour,
                "marker": marker(index),
                "ms": 7,
            }
            if method.title in costs:
                sent.plot(costs[method.title].whole.total_bytes / 1e6, value, ls="", **look)
                seconds = costs[method.title].whole.seconds_per_round
                spent.plot(seconds, value, ls="", **look)
        sent.set_xlabel("traffic of a run, all sites, both ways (MB)")
        spent.set_xlabel("work of all sites in a round (seconds)")
        for panel in (sent, spent):
            panel.margins(0.1)
            quiet_title(panel, f"{how.title_with_unit}, mean over sites")
        return to_data_uri(figure)


def effort_figure(comparison: Comparison) -> Drawing | None:
    """The first metric at each site by how sites were annotated; None where all had masks."""
    from polyclinic.weak import KINDS

    methods = [(n, m) for n, m in enumerate(comparison.methods) if m.finished]
    kinds = [{site.name: site.kind for site in m.runs[0].about.sites} for _, m in methods]
    known = {kind for each in kinds for kind in each.values()}
    if not comparison.metrics or known <= {"mask"}:
        return None
    metric = comparison.metrics[0]
    how = comparison.measure(metric)
    order = [kind for kind in (*KINDS, "mask") if kind in known]
    order += sorted(known - set(order))
    efforts = {kind: KINDS[kind].cost if kind in KINDS else "an outline" for kind in order}
    with canvas(1, 1, (WIDTH, 3.3), Margins(bottom=0.75)) as (figure, axes):
        panel = axes[0][0]
        for (index, method), own in zip(methods, kinds, strict=True):
            points = [
                (order.index(own[site]), how.factor * float(value))
                for site in own
                if (value := _site_mean(method, metric, site)) is not None
            ]
            places = [place + 0.5 * (index / len(comparison.methods) - 0.5) for place, _ in points]
            values = [value for _, value in points]
            shape, colour = marker(index), style(index).colour
            panel.plot(places, values, shape, ms=6, color=colour, alpha=0.85)
        labels = [f"{kind}\n{efforts[kind]}" for kind in dict.fromkeys(order)]
        panel.set_xticks(range(len(labels)), labels)
        quiet_title(panel, f"{how.title_with_unit} of each site, by the kind of its labels")
        return to_data_uri(figure)


def _site_means(method: MethodRuns, metric: str, sites: Sequence[str]) -> list[float]:
    found = [_site_mean(method, metric, site) for site in sites]
    return [float("nan") if value is None else value for value in found]


def _site_mean(method: MethodRuns, metric: str, site: str) -> float | None:
    found = [
        run.summaries[metric][OVERALL].sites[site].mean
        for run in method.finished
        if metric in run.summaries and site in run.summaries[metric][OVERALL].sites
    ]
    return float(np.mean(found)) if found else None
