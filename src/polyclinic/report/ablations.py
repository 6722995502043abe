"""Methods that differ in some of their settings only: ticks and values beside their scores."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from polyclinic.evaluation.statistics import OVERALL
from polyclinic.report.reading import Comparison, MethodRuns
from polyclinic.report.score_tables import Cell, Table, comparison_table
from polyclinic.report.settings import (
    differing,
    is_off,
    is_plain_fedavg,
    is_switch,
    of_method,
    of_methods,
    short,
    text_of,
)
from polyclinic.report.sheets import Entry, Sheet, mark_sentence, scored, spread_sentence
from polyclinic.runs import slug

WEIGHTING = "method.weighting"
_MOST = 8  # settings in a table: rows that differ in more are no ablation


def ablations(comparison: Comparison) -> list[Sheet]:
    """A table for each method that was run with several settings: a column for each of them.

    FedAvg of the same study stands above them, for what all of them add to it.
    """
    groups: dict[str, list[MethodRuns]] = {}
    for method in comparison.methods:
        if method.finished:
            groups.setdefault(str(of_method(method).get("method.name")), []).append(method)
    sheets = (
        _sheet(name, methods, comparison) for name, methods in groups.items() if len(methods) > 1
    )
    return [sheet for sheet in sheets if sheet]


def _sheet(name: str, methods: Sequence[MethodRuns], comparison: Comparison) -> Sheet | None:
    keys = differing(of_methods(methods))
    if not 0 < len(keys) <= _MOST:
        return None
    plain = _plain(methods, comparison)
    comparison = replace(comparison, methods=(*plain, *methods))
    settings = of_methods(comparison.methods)
    columns = {key: _texts([each.get(key) for each in settings]) for key in keys}
    if WEIGHTING in columns:  # a row without one of its own has its study's or its authors'
        columns[WEIGHTING] = [text_of(each.runs[0].about.weighting) for each in comparison.methods]
    tables = [comparison_table(comparison, metric, [OVERALL]) for metric in comparison.metrics]
    rows = tuple(
        (
            Entry(method.title),
            *(Entry(columns[key][place]) for key in keys),
            *(scored(_average(table, place), table) for table in tables),
        )
        for place, method in enumerate(comparison.methods)
    )
    return Sheet(
        name=f"ablation-{slug(name)}",
        title=f"Settings of {name}",
        caption="Average over sites and regions. ✓ is on, – is off. "
        + ("FedAvg is that of the same study. " if plain else "")
        + (spread_sentence(tables[0]) if any(each.spread for row in rows for each in row) else "")
        + (mark_sentence(tables[0]) if tables else ""),
        heads=(
            "Method",
            *map(short, keys),
            *(f"{table.measure.title_with_unit} {table.measure.arrow}" for table in tables),
        ),
        rows=rows,
        words=1 + len(keys),
    )


def _plain(methods: Sequence[MethodRuns], comparison: Comparison) -> list[MethodRuns]:
    """FedAvg's rows on the same images and networks, for methods that average as it does."""
    if not methods[0].runs[0].about.weighting:
        return []
    alike = [_study(method) for method in methods]
    return [
        each
        for each in comparison.methods
        if each.finished and each not in methods and is_plain_fedavg(each) and _study(each) in alike
    ]


def _study(method: MethodRuns) -> dict[str, Any]:
    return {k: v for k, v in of_method(method).items() if not k.startswith("method.")}


def _texts(values: Sequence[Any]) -> list[str]:
    if is_switch(values):
        return ["–" if is_off(value) else "✓" for value in values]
    return [text_of(value) for value in values]


def _average(table: Table, place: int) -> Cell:
    index = next(n for n, column in enumerate(table.columns) if column.kind == "average")
    return table.rows[place].cells[index]
