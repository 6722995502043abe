"""Tables for other programs: CSV, Markdown, LaTeX and the terminal."""

import csv
import io
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from polyclinic.report.score_tables import Table
from polyclinic.report.sheets import Entry, Sheet

if TYPE_CHECKING:
    from rich.table import Table as TerminalTable


def to_csv(sheet: Sheet) -> str:
    """All numbers in full precision and the metric's own unit, with deviations where there are."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = _full_heads(sheet)[sheet.words :]
    numbers = [f"{n} {what}" for n in names for what in ("mean", "std")] if sheet.spreads else names
    writer.writerow([*map(_plain, sheet.heads[: sheet.words]), *numbers, *sheet.notes])
    for row, told in zip(sheet.rows, sheet.told or [()] * len(sheet.rows), strict=True):
        values = [
            value
            for entry in row[sheet.words :]
            for value in ((entry.number, entry.deviation) if sheet.spreads else (entry.number,))
        ]
        words = [entry.text for entry in row[: sheet.words]]
        shown = ["" if math.isnan(each) else repr(each) for each in values]
        writer.writerow([*words, *shown, *told])
    return text.getvalue()


def to_markdown(sheet: Sheet) -> str:
    """A table for a page in Markdown, the caption below it."""
    heads = _full_heads(sheet) if len(sheet.groups) > 1 else sheet.heads
    rule = ["---"] * sheet.words + ["---:"] * (len(sheet.heads) - sheet.words)
    lines = [[_markdown(head) for head in heads], rule]
    lines += [[_markdown_entry(entry) for entry in row] for row in sheet.rows]
    body = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"{body}\n\n*{_markdown(sheet.title)}.* {_markdown(sheet.caption)}\n"


def to_latex(sheet: Sheet) -> str:
    r"""A tabular for a paper; it needs \usepackage{booktabs} and, for ticks, amssymb."""
    numbers = len(sheet.heads) - sheet.words
    several = len(sheet.groups) > 1
    counts = [count for _, count in sheet.groups] if several else [numbers]
    lines = [
        f"% {_latex(sheet.title)}. {_latex(sheet.caption)}",
        r"% needs \usepackage{booktabs,amssymb}",
        rf"\begin{{tabular}}{{{'l' * sheet.words}" + "".join(" " + "r" * c for c in counts) + "}",
        r"\toprule",
    ]
    if several:
        lines += _latex_groups(sheet.groups, sheet.words)
    lines += [rf"{' & '.join(map(_latex, sheet.heads))} \\", r"\midrule"]
    lines += [rf"{' & '.join(map(_latex_entry, row))} \\" for row in sheet.rows]
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


def _full_heads(sheet: Sheet) -> list[str]:
    """The heads, those of numbers with their group in front."""
    owners = [name for name, count in sheet.groups for _ in range(count)]
    numbers = sheet.heads[sheet.words :]
    if owners:
        numbers = tuple(f"{name} / {head}" for name, head in zip(owners, numbers, strict=True))
    return [*sheet.heads[: sheet.words], *numbers]


def _plain(head: str) -> str:
    return head.lower() if head in ("Method", "Model") else head


def _markdown(text: str) -> str:
    return "".join(f"\\{each}" if each in "|*_`<\\" else each for each in text)


def _markdown_entry(entry: Entry) -> str:
    text = _markdown(entry.text)
    marked = {"best": f"**{text}**", "second": f"<u>{text}</u>"}.get(entry.mark, text)
    return marked + ("≈" if entry.near else "") + (f" ± {entry.spread}" if entry.spread else "")


def _latex_groups(groups: Sequence[tuple[str, int]], words: int) -> list[str]:
    heads, rules, first = [], [], words + 1
    for name, count in groups:
        heads.append(rf"\multicolumn{{{count}}}{{c}}{{{_latex(name)}}}")
        rules.append(rf"\cmidrule(lr){{{first}-{first + count - 1}}}")
        first += count
    return [rf"{' & ' * words}{' & '.join(heads)} \\", " ".join(rules)]


def _latex_entry(entry: Entry) -> str:
    text = _latex(entry.text)
    marked = {"best": rf"\textbf{{{text}}}", "second": rf"\underline{{{text}}}"}.get(
        entry.mark, text
    )
    near = r"$^{\approx}$" if entry.near else ""
    spread = rf"{{\scriptsize$\pm${entry.spread}}}" if entry.spread else ""
    return marked + near + spread


_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "↑": r"$\uparrow$",
    "↓": r"$\downarrow$",
    "✓": r"$\checkmark$",
    "±": r"$\pm$",
    "≈": r"$\approx$",
    "−": r"$-$",
    "–": "--",
    "×": r"$\times$",
    "ε": r"$\varepsilon$",
    "λ": r"$\lambda$",
    "µ": r"$\mu$",
    "²": "$^2$",
    "\u2009": r"\,",
    **{character: f"\\{character}" for character in "&%$#_{}"},
}


def _latex(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)
