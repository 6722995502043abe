"""The comparison table of a metric: methods by sites, as the papers print it."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from typing import Literal

from polyclinic.evaluation.statistics import OVERALL, Spread, Summary, across_seeds
from polyclinic.report.chance import IMAGES, UNTESTED, Part, near_best
from polyclinic.report.conditions import Conditions, ceilings_of, conditions_of, scored_rows, told
from polyclinic.report.measures import Measure
from polyclinic.report.reading import Comparison, MethodRuns

Kind = Literal["site", "average", "deviation", "images"]
Mark = Literal["best", "second", ""]
Over = Literal["cases", "seeds", "folds"]


@dataclass(frozen=True)
class Column:
    """A site, or one of the summaries over them, for one region or for all of them."""

    region: str
    name: str
    kind: Kind


@dataclass(frozen=True)
class Cell:
    """A number and, where one was taken, its standard deviation; NaN stands for none.

    `near` says that its distance from the best in the column may be chance.
    """

    value: float
    spread: float = math.nan
    mark: Mark = ""
    near: bool = False


@dataclass(frozen=True)
class Row:
    """The numbers of one method; the note says what is missing, or that it ranks with nobody."""

    title: str
    note: str
    cells: tuple[Cell, ...]
    conditions: Conditions


@dataclass(frozen=True)
class Table:
    """One metric of all methods; what standard deviations are over."""

    measure: Measure
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    over: Over
    conditions: str  # of all rows, in words

    @property
    def groups(self) -> list[tuple[str, int]]:
        """The regions in the order of their columns, and how many columns each has."""
        names = [column.region for column in self.columns]
        return [(name, names.count(name)) for name in dict.fromkeys(names)]

    def of_sites(self, sites: Collection[str]) -> "Table":
        """The same table with columns of these sites alone, beside those over all sites."""
        kept = [each.kind != "site" or each.name in sites for each in self.columns]
        rows = [replace(row, cells=tuple(compress(row.cells, kept))) for row in self.rows]
        return replace(self, columns=tuple(compress(self.columns, kept)), rows=tuple(rows))


def comparison_table(
    comparison: Comparison, metric: str, regions: Sequence[str] | None = None
) -> Table:
    """Means per site and region, then their average, deviation and the mean over images.

    With one run a spread is that over cases; as soon as a method has several seeds, or folds, over
    these. Seeds of a fold are averaged first.
    """
    columns = _columns(comparison, metric, regions)
    over = _over(comparison)
    shown = scored_rows(comparison)
    ceilings = ceilings_of(comparison, shown)
    rows = [
        Row(
            method.title,
            _note(method, ceiling=method.title in ceilings),
            tuple(_cells(method, metric, columns, over)),
            conditions_of(method),
        )
        for method in shown
    ]
    how = comparison.measure(metric)
    near = near_best(comparison, metric, [(each.region, _part(each)) for each in columns])
    return Table(how, columns, _marked(rows, columns, how, ceilings, near), over, told(shown))


def _note(method: MethodRuns, *, ceiling: bool) -> str:
    notes = (missing_seeds(method), method.note, "ceiling" if ceiling else "")
    return ", ".join(filter(None, notes))


def _over(comparison: Comparison) -> Over:
    if any(len(method.folds) > 1 for method in comparison.methods):
        return "folds"
    several = any(len(method.finished) > 1 for method in comparison.methods)
    return "seeds" if several else "cases"


def _part(column: Column) -> Part:
    parts = {"site": column.name, "average": None, "images": IMAGES, "deviation": UNTESTED}
    return parts[column.kind]


def missing_seeds(method: MethodRuns) -> str:
    """What a reader must know about a method that is not complete, or nothing."""
    done, begun = len(method.finished), len(method.runs)
    if done == begun:
        return ""
    what = "runs" if any(run.fold for run in method.runs) else "seeds"
    return "unfinished" if begun == 1 else f"{done} of {begun} {what}"


def _columns(
    comparison: Comparison, metric: str, regions: Sequence[str] | None
) -> tuple[Column, ...]:
    shown = list(regions if regions is not None else comparison.regions_of(metric))
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


def _cells(method: MethodRuns, metric: str, columns: tuple[Column, ...], over: Over) -> list[Cell]:
    summaries = [
        [run.summaries[metric] for run in runs if metric in run.summaries]
        for runs in method.folds.values()
    ]
    cells = []
    for column in columns:
        found = [
            [each[column.region] for each in fold if column.region in each] for fold in summaries
        ]
        summary = _over_runs([fold for fold in found if fold], over)
        spread = _number(summary, column) if summary else None
        cells.append(Cell(spread.mean, spread.std) if spread else Cell(math.nan))
    return cells


def _over_runs(folds: list[list[Summary]], over: Over) -> Summary | None:
    if not folds:
        return None
    if over == "folds":
        return across_seeds([across_seeds(seeds) for seeds in folds])
    return across_seeds(folds[0]) if over == "seeds" else folds[0][0]


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
    rows: list[Row],
    columns: tuple[Column, ...],
    how: Measure,
    ceilings: frozenset[str],
    near: Sequence[Collection[str]],
) -> tuple[Row, ...]:
    def values(index: int) -> list[float]:
        return [math.nan if row.title in ceilings else row.cells[index].value for row in rows]

    marks = [_marks(values(index), column, how) for index, column in enumerate(columns)]
    return tuple(
        replace(
            row,
            cells=tuple(
                replace(cell, mark=marks[place][number], near=row.title in near[place])
                for place, cell in enumerate(row.cells)
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
