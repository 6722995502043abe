"""What the parts of each method did, and which of them did nothing."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from polyclinic.evaluation.diagnostics import DIAGNOSTICS, warnings_about
from polyclinic.report.figures.mixtures import TENTH
from polyclinic.report.reading import Comparison
from polyclinic.runs import DIAGNOSED, RoundTable


@dataclass(frozen=True)
class Diagnosed:
    """The last diagnostics of a method's first seed: a row for each site, and words."""

    method: str
    round: int
    columns: tuple[tuple[str, str], ...]  # name and meaning
    rows: tuple[tuple[str, tuple[str, ...]], ...]
    warnings: tuple[str, ...]


def diagnosed(comparison: Comparison) -> Iterator[Diagnosed]:
    """Each method whose run has diagnostics."""
    for method in comparison.methods:
        tables = [table for table in method.runs[0].tables if table.name == DIAGNOSED]
        if tables:
            yield _diagnosed(method.title, _without_tenths(tables[-1]))


def _without_tenths(table: RoundTable) -> RoundTable:
    """The table without the histogram of a mixture, which is a figure of its own."""
    kept = [n for n, name in enumerate(table.columns) if not TENTH.fullmatch(name)]
    columns = tuple(table.columns[n] for n in kept)
    values = tuple(tuple(row[n] for n in kept) for row in table.values)
    return table.model_copy(update={"columns": columns, "values": values})


def _diagnosed(title: str, table: RoundTable) -> Diagnosed:
    about = [DIAGNOSTICS[name].summary if name in DIAGNOSTICS else "" for name in table.columns]
    values = dict(zip(table.rows, table.values, strict=True))
    words = [
        text
        for site, row in values.items()
        for text in warnings_about(site, dict(zip(table.columns, row, strict=True)))
    ]
    return Diagnosed(
        title,
        table.round,
        tuple(zip(table.columns, about, strict=True)),
        tuple((site, tuple(map(_shown, row))) for site, row in values.items()),
        tuple(words),
    )


def _shown(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.4g}"
