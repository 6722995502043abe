"""How much of the received weights sites took: histograms of a learned mixture."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from polyclinic.report.figures.style import Drawing, panels, style, to_data_uri
from polyclinic.report.reading import Comparison
from polyclinic.runs import DIAGNOSED, RoundTable

_IN_A_ROW = 6
TENTH = re.compile(r"W (\d\.\d)-\d\.\d")


@dataclass(frozen=True)
class Mixture:
    """The mixture of one method's first run after its last scored round, at each site."""

    method: str
    round: int
    figure: Drawing


def mixtures(comparison: Comparison) -> list[Mixture]:
    """A figure for each method that learns a mixture element by element."""
    found = []
    for index, method in enumerate(comparison.methods):
        tables = [table for table in method.runs[0].tables if table.name == DIAGNOSED]
        if tables and any(map(TENTH.fullmatch, tables[-1].columns)):
            figure = _drawn(tables[-1], comparison.shown_sites, style(index).colour)
            found.append(Mixture(method.title, tables[-1].round, figure))
    return found


def _drawn(table: RoundTable, sites: Sequence[str], colour: str) -> Drawing:
    rows = {site: row for site, row in zip(table.rows, table.values, strict=True) if site in sites}
    places = [n for n, name in enumerate(table.columns) if TENTH.fullmatch(name)]
    starts = [float(table.columns[place][2:5]) for place in places]
    with panels(list(rows), _IN_A_ROW, 2.1) as (figure, found):
        for panel, row in zip(found, rows.values(), strict=True):
            shares = [100 * row[place] for place in places]
            panel.bar(starts, shares, width=0.1, align="edge", color=colour, edgecolor="white")
        for panel in found[-math.ceil(len(rows) / math.ceil(len(rows) / _IN_A_ROW)) :]:
            panel.set_xlabel("W (0 own, 1 received)")
        found[0].set_ylabel("weights (%)")
        return to_data_uri(figure)
