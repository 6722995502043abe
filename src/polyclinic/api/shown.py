"""Tables and curves that show themselves: as HTML in a notebook, as text elsewhere."""

from collections.abc import Sequence
from html import escape
from typing import Any, NamedTuple

from polyclinic.evaluation.statistics import OVERALL
from polyclinic.report.exports import to_csv, to_latex, to_markdown
from polyclinic.report.figures.curves import loss_figure, validation_figure
from polyclinic.report.figures.style import style
from polyclinic.report.reading import Comparison
from polyclinic.report.score_tables import Cell, Column, Table
from polyclinic.report.sheets import sheet_of

_STYLES = {"best": "font-weight:bold", "second": "text-decoration:underline", "": ""}


class ScoreTable:
    """Methods by sites for one metric: best bold, second best underlined, ≈ within noise of it."""

    def __init__(self, table: Table) -> None:
        self._table = table

    @property
    def title(self) -> str:
        """The metric, its unit and which way is better."""
        return f"{self._table.measure.title_with_unit} {self._table.measure.arrow}".strip()

    @property
    def columns(self) -> list[str]:
        """What the numbers of a row are: sites, their average, their deviation, all images."""
        several = len(self._table.groups) > 1
        return [_heading(column, several) for column in self._table.columns]

    @property
    def rows(self) -> dict[str, list[float]]:
        """The numbers of each method in the metric's own unit; NaN stands for none."""
        return {row.title: [cell.value for cell in row.cells] for row in self._table.rows}

    def to_csv(self) -> str:
        """All means and deviations in full precision, as CSV."""
        return to_csv(sheet_of(self._table))

    def to_markdown(self) -> str:
        """A table for a page in Markdown."""
        return to_markdown(sheet_of(self._table))

    def to_latex(self) -> str:
        """A tabular for a paper."""
        return to_latex(sheet_of(self._table))

    def __str__(self) -> str:
        lines = [["Method", *self.columns]]
        for row in self._table.rows:
            numbers = [self._table.measure.text(cell.value) for cell in row.cells]
            lines.append([_title(row.title, row.note), *numbers])
        first, *others = (max(map(len, column)) for column in zip(*lines, strict=True))
        body = (
            "  ".join([line[0].ljust(first), *map(str.rjust, line[1:], others)]) for line in lines
        )
        return "\n".join([self.title, *body])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{escape(name)}</th>" for name in ("Method", *self.columns))
        body = "".join(
            f"<tr><th>{escape(_title(row.title, row.note))}</th>"
            f"{''.join(map(self._cell, row.cells))}</tr>"
            for row in self._table.rows
        )
        caption = f"<caption>{escape(self.title)}</caption>"
        return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"

    def _cell(self, cell: Cell) -> str:
        text = self._table.measure.text(cell.value) + ("≈" if cell.near else "")
        return f'<td style="{_STYLES[cell.mark]}">{text}</td>'


class CurveRow(NamedTuple):
    """Training loss and validation score of one site in one round; NaN where there is none."""

    method: str
    seed: int
    site: str
    round: int
    loss: float
    validation: float


class Curves:
    """Learning curves: numbers in `rows`, a figure in a notebook."""

    def __init__(self, comparison: Comparison, rows: Sequence[CurveRow]) -> None:
        self._comparison = comparison
        self.rows = list(rows)
        """A row for each method, seed, site and round."""

    def frame(self) -> Any:
        """The rows as a pandas DataFrame; where pandas is not installed, the rows themselves."""
        return framed(self.rows, CurveRow)

    def __repr__(self) -> str:
        rounds = max((row.round for row in self.rows), default=0)
        methods = ", ".join(dict.fromkeys(row.method for row in self.rows))
        return f"<Curves: {methods}; rounds: {rounds}>"

    def _repr_html_(self) -> str:
        figures = (validation_figure(self._comparison), loss_figure(self._comparison))
        legend = "".join(
            f'<span style="color:{style(number).colour}">━ {escape(method.title)}</span>&emsp;'
            for number, method in enumerate(self._comparison.methods)
        )
        images = "".join(f'<img src="{each}" alt="learning curves">' for each in figures if each)
        return f"<div>{legend}</div>{images}"


def framed(rows: Sequence[Any], row: type) -> Any:
    """The rows as a DataFrame with the row's fields as columns; the rows without pandas."""
    try:
        import pandas
    except ImportError:
        return rows
    return pandas.DataFrame(rows, columns=row._fields)  # type: ignore[attr-defined]


def _heading(column: Column, several: bool) -> str:
    region = "all regions" if column.region == OVERALL else column.region
    return f"{region} {column.name}" if several else column.name


def _title(title: str, note: str) -> str:
    return f"{title} ({note})" if note else title
