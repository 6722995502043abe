"""Tables between sites that a method's server made, such as the affinity of their prompts."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from polyclinic.report.figures.style import (
    Drawing,
    Margins,
    canvas,
    count_rounds,
    quiet_title,
    shortened,
    style,
    to_data_uri,
)
from polyclinic.report.reading import Comparison, Run
from polyclinic.runs import DIAGNOSED, RoundTable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_CELL, _EVOLUTION, _LABELS, _LEGEND = 0.52, 4.4, 1.35, 1.9  # inches
_WIDEST = 9.0  # inches of a map; its cells shrink
_MOST_NUMBERS = 16  # sites a side whose cells hold their numbers
_MOST_PAIRS = 15  # with a line and a name each; beyond, every line is grey
_LEAST_RANGE = 0.02  # of the colours, so that sites that hardly differ look alike
_DARK = 0.6  # above this share of the scale numbers are white


@dataclass(frozen=True)
class Relation:
    """The tables of one name that one method made: the last as a heat map, all as curves."""

    method: str
    name: str
    seed: int
    when: str  # the last of them was made
    by_round: bool  # whether there are tables of several rounds
    figure: Drawing


def relations(comparison: Comparison) -> list[Relation]:
    """One picture for each method and each name of its tables, by the method's first run."""
    return [
        Relation(
            method.title,
            name,
            method.runs[0].about.seed,
            _when(tables[-1]),
            len(tables) > 1,
            _picture(name, [_shown(table, comparison.shown_sites) for table in tables]),
        )
        for method in comparison.methods
        for name, tables in _by_name(method.runs[0])
    ]


def _when(table: RoundTable) -> str:
    if table.final:
        return "at the end"
    return f"after round {table.round}" if table.round else "before the first round"


def _by_name(run: Run) -> Iterator[tuple[str, list[RoundTable]]]:
    for name in dict.fromkeys(table.name for table in run.tables if table.name != DIAGNOSED):
        last = next(table for table in reversed(run.tables) if table.name == name)
        # Sites may change between versions of a study, never within one picture.
        same = (last.rows, last.columns)
        yield (
            name,
            [t for t in run.tables if t.name == name and (t.rows, t.columns) == same],
        )


def _shown(table: RoundTable, sites: Sequence[str]) -> RoundTable:
    """The table of the sites that the page shows one by one, where it is one between sites."""
    if set(table.rows) <= set(sites) or table.rows != table.columns:
        return table
    kept = [place for place, name in enumerate(table.rows) if name in sites]
    names = tuple(table.rows[place] for place in kept)
    values = tuple(tuple(table.values[row][column] for column in kept) for row in kept)
    return table.model_copy(update={"rows": names, "columns": names, "values": values})


def _picture(name: str, tables: Sequence[RoundTable]) -> Drawing:
    last = tables[-1]
    cell = min(_CELL, _WIDEST / len(last.columns))
    if len(tables) == 1:
        size = (_LABELS + cell * len(last.columns) + 0.4, max(2.6, 1.3 + cell * len(last.rows)))
        with canvas(1, 1, size, Margins(left=_LABELS, right=0.4, bottom=1.0)) as (figure, axes):
            _draw_map(axes[0][0], last, _when(last))
            return to_data_uri(figure)
    map_width = _LABELS + cell * len(last.columns)
    height = max(2.6, 1.3 + cell * len(last.rows))
    width = map_width + 0.9 + _EVOLUTION + _LEGEND
    margins = Margins(left=_LABELS, right=_LEGEND, bottom=1.0, across=0.9)
    with canvas(1, 2, (width, height), margins, width_ratios=[map_width - _LABELS, _EVOLUTION]) as (
        figure,
        axes,
    ):
        heat, evolution = axes[0]
        _draw_map(heat, last, f"{name}, {_when(last)}")
        _draw_evolution(evolution, tables)
        quiet_title(evolution, f"{name} of each pair of sites, by round")
        return to_data_uri(figure)


def _draw_map(panel: "Axes", table: RoundTable, title: str) -> None:
    values = np.array(table.values, dtype=np.float64)
    between = values[np.eye(*values.shape) == 0] if len(values) > 1 else values
    low, high = np.nanmin(between), max(np.nanmax(between), np.nanmin(between) + _LEAST_RANGE)
    panel.imshow(values, cmap="Blues", vmin=low, vmax=high)
    panel.grid(visible=False)
    panel.set_xticks(
        range(len(table.columns)),
        [shortened(n, 14) for n in table.columns],
        rotation=40,
        ha="right",
    )
    panel.set_yticks(range(len(table.rows)), [shortened(n, 14) for n in table.rows])
    for (row, column), value in np.ndenumerate(values) if len(values) <= _MOST_NUMBERS else ():
        dark = (value - low) / (high - low) > _DARK
        colour = "white" if dark else "#1f2733"
        panel.text(column, row, f"{value:.2f}", ha="center", va="center", fontsize=8, color=colour)
    quiet_title(panel, title)


def _draw_evolution(panel: "Axes", tables: Sequence[RoundTable]) -> None:
    """A line for each pair of sites: the mean of both directions."""
    numbers = [table.round for table in tables]
    values = np.array([table.values for table in tables], dtype=np.float64)
    pairs = list(combinations(range(min(values.shape[1:])), 2))
    many = len(pairs) > _MOST_PAIRS
    for index, (one, other) in enumerate(pairs):
        curve = (values[:, one, other] + values[:, other, one]) / 2
        title = f"{shortened(tables[-1].rows[one], 12)} – {shortened(tables[-1].rows[other], 12)}"
        look = {"color": "#5b6675"} if many else style(index).line
        marker = "o" if len(numbers) == 1 else None
        panel.plot(numbers, curve, lw=1.2, marker=marker, ms=3.5, label=title, **look)
    if pairs and not many:
        panel.legend(fontsize=7, frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    count_rounds(panel)
