"""What the parts of each method did, and which of them did nothing."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from polyclinic.evaluation.diagnostics import DIAGNOSTICS, warnings_of
from polyclinic.report.figures.mixtures import TENTH
from polyclinic.report.reading import Comparison
from polyclinic.runs import DIAGNOSED, RoundTable


@dataclass(frozen=True)
class Diagnosed:
    """The last diagnostics of a method's first run, a column for each site shown, and words."""

    method: str
    round: int
    sites: tuple[str, ...]
    rows: tuple[tuple[str, str, tuple[str, ...]], ...]  # name, meaning and values
    warnings: tuple[str, ...]


def diagnosed(comparison: Comparison) -> Iterator[Diagnosed]:
    """Each method whose run has diagnostics."""
    for method in comparison.methods:
        tables = [table for table in method.runs[0].tables if table.name == DIAGNOSED]
        if tables:
            table = _without_tenths(tables[-1])
            yield _diagnosed(method.title, table, comparison.shown_sites)


def _without_tenths(table: RoundTable) -> RoundTable:
    """The table without the histogram of a mixture, which is a figure of its own."""
    kept = [n for n, name in enumerate(table.columns) if not TENTH.fullmatch(name)]
    columns = tuple(table.columns[n] for n in kept)
    values = tuple(tuple(row[n] for n in kept) for row in table.values)
    return table.model_copy(update={"columns": columns, "values": values})


def _diagnosed(title: str, table: RoundTable, shown: Sequence[str]) -> Diagnosed:
    about = [DIAGNOSTICS[name].summary if name in DIAGNOSTICS else "" for name in table.columns]
    values = dict(zip(table.rows, table.values, strict=True))
    sites = [site for site in values if site in shown]
    notes = {site: dict(zip(table.columns, row, strict=True)) for site, row in values.items()}
    return Diagnosed(
        title,
        table.round,
        tuple(sites),
        tuple(
            (name, meaning, tuple(_shown(values[site][place]) for site in sites))
            for place, (name, meaning) in enumerate(zip(table.columns, about, strict=True))
        ),
        tuple(warnings_of(notes)),
    )


def _shown(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.4g}"
