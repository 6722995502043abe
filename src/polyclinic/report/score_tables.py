"""The comparison table of a metric: methods by sites, as the papers print it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from polyclinic.evaluation.ranking import Ranked, ranking
from polyclinic.evaluation.statistics import OVERALL, Spread, Summary, across_seeds
from polyclinic.report.conditions import Conditions, conditions_of, scored_rows, told
from polyclinic.report.measures import Measure
from polyclinic.report.reading import Comparison, MethodRuns

Kind = Literal["site", "average", "deviation", "images"]
Mark = Literal["best", "second", ""]


@dataclass(frozen=True)
class Column:
    """A site, or one of the summaries over them, for one region or for all of them."""

    region: str
    name: str
    kind: Kind


@dataclass(frozen=True)
class Cell:
    """A number and, where one was taken, its standard deviation; NaN stands for none."""

    value: float
    spread: float = math.nan
    mark: Mark = ""


@dataclass(frozen=True)
class Row:
    """The numbers of one method; the note says what is missing, or that it ranks with nobody."""

    title: str
    note: str
    cells: tuple[Cell, ...]
    conditions: Conditions


@dataclass(frozen=True)
class Table:
    """One metric of all methods."""

    measure: Measure
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    over_seeds: bool
    conditions: str  # of all rows, in words

    @property
    def groups(self) -> list[tuple[str, int]]:
        """The regions in the order of their columns, and how many columns each has."""
        names = [column.region for column in self.columns]
        return [(name, names.count(name)) for name in dict.fromkeys(names)]


def comparison_table(
    comparison: Comparison, metric: str, regions: Sequence[str] | None = None
) -> Table:
    """Means per site and region, then their average, deviation and the mean over images.

    With one seed a spread is that over cases; as soon as a method has several, over seeds.
    """
    columns = _columns(comparison, regions)
    over_seeds = any(len(method.finished) > 1 for method in comparison.methods)
    shown = scored_rows(comparison)
    ceilings = _ceilings(comparison, shown)
    rows = [
        Row(
            method.title,
            _note(method, ceiling=method.title in ceilings),
            tuple(_cells(method, metric, columns, over_seeds)),
            conditions_of(method),
        )
        for method in shown
    ]
    how = comparison.measure(metric)
    marked = _marked(rows, columns, how, ceilings)
    return Table(how, columns, marked, over_seeds, told(shown))


def _note(method: MethodRuns, *, ceiling: bool) -> str:
    notes = (missing_seeds(method), method.note, "ceiling" if ceiling else "")
    return ", ".join(filter(None, notes))


def _ceilings(comparison: Comparison, rows: Sequence[MethodRuns]) -> frozenset[str]:
    return frozenset(row.title for row in rows if comparison.ceilings and row.on_full_masks)


def ranked(comparison: Comparison, metric: str) -> list[Ranked]:
    """The methods but ceilings from best to worst by a metric that has a better side."""
    better = comparison.measure(metric).better
    shown = scored_rows(comparison)
    ceilings = _ceilings(comparison, shown)
    methods = [row for row in shown if row.finished and row.title not in ceilings]
    if better is None or len(methods) < 2:
        return []
    values = {method.title: _by_case(method, metric, comparison) for method in methods}
    return ranking(values, higher=better == "higher")


def _by_case(
    method: MethodRuns, metric: str, comparison: Comparison
) -> dict[str, dict[str, float]]:
    """Site → case → mean over regions and seeds."""
    found: dict[str, dict[str, list[float]]] = {}
    for run in method.finished:
        for site in comparison.sites:
            for region in comparison.regions:
                for case, value in run.tested.get((metric, region, site), {}).items():
                    found.setdefault(site, {}).setdefault(case, []).append(value)
    return {
        site: {case: sum(values) / len(values) for case, values in cases.items()}
        for site, cases in found.items()
    }


def missing_seeds(method: MethodRuns) -> str:
    """What a reader must know about a method that is not complete, or nothing."""
    done, begun = len(method.finished), len(method.runs)
    if done == begun:
        return ""
    return "unfinished" if begun == 1 else f"{done} of {begun} seeds"


def _columns(comparison: Comparison, regions: Sequence[str] | None) -> tuple[Column, ...]:
    shown = list(regions if regions is not None else comparison.regions)
    columns = [
        column
        for region in shown
        for column in [
            *(Column(region, site, "site") for site in comparison.sites),
            *_summary_columns(region),
        ]
    ]
    if len(shown) > 1:
        columns += _summary_columns(OVERALL)
    return tuple(columns)


def _summary_columns(region: str) -> list[Column]:
    return [
        Column(region, "Avg", "average"),
        Column(region, "Std", "deviation"),
        Column(region, "Images", "images"),
    ]


def _cells(
    method: MethodRuns, metric: str, columns: tuple[Column, ...], over_seeds: bool
) -> list[Cell]:
    summaries = [run.summaries[metric] for run in method.finished if metric in run.summaries]
    cells = []
    for column in columns:
        found = [regions[column.region] for regions in summaries if column.region in regions]
        spread = _number(across_seeds(found) if over_seeds else found[0], column) if found else None
        cells.append(Cell(spread.mean, spread.std) if spread else Cell(math.nan))
    return cells


def _number(summary: Summary, column: Column) -> Spread | None:
    if column.kind == "site":
        return summary.sites.get(column.name)
    numbers = {
        "average": summary.average,
        "deviation": summary.deviation,
        "images": summary.images,
    }
    return numbers[column.kind]


def _marked(
    rows: list[Row], columns: tuple[Column, ...], how: Measure, ceilings: frozenset[str]
) -> tuple[Row, ...]:
    def values(index: int) -> list[float]:
        return [math.nan if row.title in ceilings else row.cells[index].value for row in rows]

    marks = [_marks(values(index), column, how) for index, column in enumerate(columns)]
    return tuple(
        replace(
            row,
            cells=tuple(
                replace(cell, mark=marks[place][number]) for place, cell in enumerate(row.cells)
            ),
        )
        for number, row in enumerate(rows)
    )


def _marks(values: list[float], column: Column, how: Measure) -> list[Mark]:
    """Best and second best by the printed numbers, so that equal numbers are marked alike."""
    printed = [float(how.text(value)) if math.isfinite(value) else math.nan for value in values]
    present = {value for value in printed if not math.isnan(value)}
    if how.better is None or sum(not math.isnan(value) for value in printed) < 2:
        return [""] * len(values)
    higher = how.better == "higher" and column.kind != "deviation"
    places: dict[float, Mark] = dict(
        zip(sorted(present, reverse=higher), ("best", "second"), strict=False)
    )
    return [places.get(value, "") for value in printed]
