"""Every test case as a point, with the box of its method and site."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from polyclinic.report.figures.style import (
    Drawing,
    Margins,
    panels,
    shortened,
    style,
    to_data_uri,
)
from polyclinic.report.reading import Comparison, MethodRuns

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_COLUMNS = 6


def distribution_figure(comparison: Comparison, metric: str, region: str) -> Drawing:
    """One panel per site, one row per finished method: box from quartile to quartile, all cases."""
    from matplotlib.ticker import MaxNLocator

    how = comparison.measure(metric)
    methods = [(index, each) for index, each in enumerate(comparison.methods) if each.finished]
    labels = [shortened(method.title) for _, method in methods]
    margins = Margins(left=0.25 + 0.075 * max(map(len, labels)), bottom=0.28, down=0.5)
    height = 0.27 * len(methods) + 0.7
    sites = comparison.shown_sites
    with panels(sites, _MOST_COLUMNS, height, margins) as (figure, found):
        for panel, site in zip(found, sites, strict=True):
            rows_of_cases = [
                (place, style(index).colour, how.factor * _pooled(method, metric, region, site))
                for place, (index, method) in enumerate(methods)
            ]
            _draw(panel, rows_of_cases)
            panel.grid(axis="y", visible=False)
        found[0].set_yticks(range(len(methods)), labels)
        found[0].set_ylim(len(methods) - 0.4, -0.6)
        found[0].xaxis.set_major_locator(MaxNLocator(nbins=4, steps=[1, 2, 2.5, 5, 10]))
        return to_data_uri(figure)


def _pooled(method: MethodRuns, metric: str, region: str, site: str) -> NDArray[np.float64]:
    values = np.concatenate([run.case_values(metric, [region], site) for run in method.finished])
    return values[np.isfinite(values)]


def _draw(panel: "Axes", rows: list[tuple[int, str, NDArray[np.float64]]]) -> None:
    rows = [row for row in rows if row[2].size]
    if not rows:
        return
    panel.use_sticky_edges = False  # a box that begins at nought must not end at the axis
    places = [place for place, _, _ in rows]
    colours = [colour for _, colour, _ in rows]
    _draw_points(panel, rows)
    low, middle, high = np.array([np.percentile(values, (25, 50, 75)) for *_, values in rows]).T
    ends = [_whiskers(values, *box) for (*_, values), *box in zip(rows, low, high, strict=True)]
    panel.hlines(places, [left for left, _ in ends], low, colors=colours, lw=1.1)
    panel.hlines(places, high, [right for _, right in ends], colors=colours, lw=1.1)
    panel.barh(
        places, high - low, 0.6, low, color=(1, 1, 1, 0.5), edgecolor=colours, lw=1.1, zorder=2
    )
    tops, bottoms = np.add(places, 0.3), np.subtract(places, 0.3)
    panel.vlines(middle, bottoms, tops, colors=colours, lw=2.6, zorder=3)


def _draw_points(panel: "Axes", rows: list[tuple[int, str, NDArray[np.float64]]]) -> None:
    # Spread evenly rather than by chance: the same run always gives the same picture.
    heights = [place + 0.5 * (np.arange(len(v)) * 0.618034 % 1 - 0.5) for place, _, v in rows]
    colours = [colour for _, colour, values in rows for _ in values]
    values = np.concatenate([values for *_, values in rows])
    panel.scatter(
        values, np.concatenate(heights), s=7, c=colours, alpha=0.5, lw=0, rasterized=True, zorder=1
    )


def _whiskers(values: NDArray[np.float64], low: float, high: float) -> tuple[float, float]:
    """The outermost cases within one and a half boxes of the box."""
    reach = 1.5 * (high - low)
    near = values[(values >= low - reach) & (values <= high + reach)]
    return float(near.min()), float(near.max())
