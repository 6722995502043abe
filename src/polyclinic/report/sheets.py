"""A table of texts and numbers that can be written in any form: what all tables become."""

import math
from dataclasses import dataclass, fields

from polyclinic.report.conditions import Conditions
from polyclinic.report.score_tables import Cell, Table
from polyclinic.report.words import region_title


@dataclass(frozen=True)
class Entry:
    """What stands in one place: its text, what it is sorted by, and how it is marked."""

    text: str
    number: float = math.nan
    spread: str = ""
    deviation: float = math.nan  # what the spread is the text of
    mark: str = ""  # best or second
    near: bool = False


@dataclass(frozen=True)
class Sheet:
    """A table: its file's name, what it shows, how it was made, its heads and its rows.

    `groups` are heads over the columns of numbers, each with how many it has. The first `words`
    columns hold words, the others numbers, `spreads` with deviations.
    """

    name: str
    title: str
    caption: str
    heads: tuple[str, ...]
    rows: tuple[tuple[Entry, ...], ...]
    groups: tuple[tuple[str, int], ...] = ()
    words: int = 1
    spreads: bool = False
    notes: tuple[str, ...] = ()  # heads of what only a CSV tells of each row
    told: tuple[tuple[str, ...], ...] = ()  # of each row


def sheet_of(table: Table) -> Sheet:
    """A table of scores as a sheet."""
    how = table.measure
    groups = tuple((region_title(name), count) for name, count in table.groups)
    return Sheet(
        name=how.name,
        title=f"{how.title_with_unit} {how.arrow}".strip(),
        caption=f"{spread_sentence(table)}{mark_sentence(table)} {table.conditions}".strip(),
        heads=("Method", *(column.name for column in table.columns)),
        rows=tuple(
            (Entry(row.title), *(scored(cell, table) for cell in row.cells)) for row in table.rows
        ),
        groups=groups,
        spreads=True,
        notes=tuple(each.name for each in fields(Conditions)),
        told=tuple(
            (own.model, own.weighting, " ".join(map(str, own.seeds)), own.settings)
            for own in (row.conditions for row in table.rows)
        ),
    )


def scored(cell: Cell, table: Table) -> Entry:
    """A cell of a table of scores."""
    how = table.measure
    spread = "" if math.isnan(cell.spread) else how.text(cell.spread)
    return Entry(how.text(cell.value), cell.value, spread, cell.spread, cell.mark, cell.near)


def spread_sentence(table: Table) -> str:
    """What ± means in a table of scores."""
    if table.over == "cases":
        return "Mean ± standard deviation over cases (divisor n). "
    return f"Mean ± standard deviation over {table.over} (divisor n − 1). "


def mark_sentence(table: Table) -> str:
    """What the marks of a table of scores mean; nothing where there are none."""
    if not any(cell.mark for row in table.rows for cell in row.cells):
        return ""
    return "Best bold, second best underlined, ≈ within noise of the best (sign flips of patients)."
