"""The comparison table for other programs: CSV, LaTeX and the terminal."""

import csv
import io
import math
from dataclasses import fields
from typing import TYPE_CHECKING

from polyclinic.report.conditions import Conditions
from polyclinic.report.score_tables import Cell, Table
from polyclinic.report.words import region_title

if TYPE_CHECKING:
    from rich.table import Table as TerminalTable


def to_csv(table: Table) -> str:
    """All means and standard deviations in full precision and the metric's own unit.

    The last columns are the conditions of a row.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = [f"{region_title(column.region)} / {column.name}" for column in table.columns]
    conditions = [each.name for each in fields(Conditions)]
    numbers = [f"{name} {what}" for name in names for what in ("mean", "std")]
    writer.writerow(["method", *numbers, *conditions])
    for row in table.rows:
        values = [number for cell in row.cells for number in (cell.value, cell.spread)]
        shown = ["" if math.isnan(each) else repr(each) for each in values]
        own = row.conditions
        seeds = " ".join(map(str, own.seeds))
        writer.writerow([row.title, *shown, own.model, own.weighting, seeds, own.settings])
    return text.getvalue()


def to_latex(table: Table) -> str:
    r"""A tabular for a paper; it needs \usepackage{booktabs}."""
    groups = table.groups
    lines = [
        f"% {_latex(table.measure.title_with_unit)}, best bold, second best underlined; "
        r"needs \usepackage{booktabs}",
        f"% {_latex(table.conditions)}",
        r"\begin{tabular}{l" + "".join(" " + "r" * count for _, count in groups) + "}",
        r"\toprule",
    ]
    if len(groups) > 1:
        lines += _latex_groups(groups)
    names = " & ".join(_latex(column.name) for column in table.columns)
    lines += [rf"Method & {names} \\", r"\midrule"]
    for row in table.rows:
        cells = " & ".join(_latex_cell(cell, table) for cell in row.cells)
        lines.append(rf"{_latex(row.title)} & {cells} \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def to_terminal(table: Table) -> "TerminalTable":
    """The table for a terminal, best bold and second best underlined."""
    from rich.table import Table as TerminalTable
    from rich.text import Text

    heading = f"{table.measure.title_with_unit} {table.measure.arrow}".strip()
    shown = TerminalTable(title=heading, caption=table.conditions, caption_justify="left")
    shown.add_column("Method", no_wrap=True)
    for column in table.columns:
        shown.add_column(Text(column.name), justify="right")
    for row in table.rows:
        title = Text(row.title).append(f" ({row.note})" if row.note else "", style="dim")
        shown.add_row(
            title,
            *(
                Text(table.measure.text(cell.value), style=_TERMINAL_STYLES[cell.mark])
                for cell in row.cells
            ),
        )
    return shown


def states_to_terminal(states: list[tuple[str, str]]) -> "TerminalTable":
    """Methods and how far they came, for a terminal."""
    from rich.table import Table as TerminalTable
    from rich.text import Text

    shown = TerminalTable("Method", "State")
    for title, state in states:
        shown.add_row(Text(title), Text(state))
    return shown


_TERMINAL_STYLES = {"best": "bold", "second": "underline", "": ""}


def _latex_groups(groups: list[tuple[str, int]]) -> list[str]:
    heads, rules, first = [], [], 2
    for name, count in groups:
        heads.append(rf"\multicolumn{{{count}}}{{c}}{{{_latex(region_title(name))}}}")
        rules.append(rf"\cmidrule(lr){{{first}-{first + count - 1}}}")
        first += count
    return [rf" & {' & '.join(heads)} \\", " ".join(rules)]


def _latex_cell(cell: Cell, table: Table) -> str:
    if math.isnan(cell.value):
        return "--"
    value = table.measure.text(cell.value)
    value = {"best": rf"\textbf{{{value}}}", "second": rf"\underline{{{value}}}"}.get(
        cell.mark, value
    )
    if math.isnan(cell.spread):
        return value
    return rf"{value}{{\scriptsize$\pm${table.measure.text(cell.spread)}}}"


_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
}


def _latex(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)
