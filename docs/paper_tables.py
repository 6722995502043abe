"""The papers' tables and figures: the study for each, what the paper says, and what we got."""

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from polyclinic.report.exports import to_markdown
from polyclinic.report.sheets import Entry, Sheet

Results = Mapping[str, Sheet]


def papers(results: Results) -> str:
    """The matrix of papers.toml, then for each study the paper's numbers beside ours."""
    return "\n".join(_lines(_studies(), results))


def twins(results: Results) -> str:
    """What each twin that ran gave: its scores, then the other tables that the paper has."""
    return "\n".join(_twin_lines(_studies(), results))


def also(twin: str) -> list[str]:
    """The tables of a twin, beside that of its scores, that stand on a page."""
    return [name for study in _studies() if _twin(study) == twin for name in study.get("also", [])]


def named() -> set[str]:
    """The studies of ours that are compared with a paper's."""
    return {name for study in _studies() for name, _ in _wanted(study)}


def _studies() -> list[dict[str, Any]]:
    text = (Path(__file__).parent / "papers.toml").read_text()
    return tomllib.loads(text)["study"]


def _lines(studies: list[dict[str, Any]], results: Results) -> Iterator[str]:
    yield "| paper | table or figure | study | other studies of ours | twin |"
    yield "|---|---|---|---|---|"
    for study in studies:
        file = study["file"]
        others = [name for name, _ in _ours(study, results) if name != _twin(study)]
        ran = ", ".join(f"[{name}](#{file})" for name in others) or "–"
        tried = "tried" if "tried" in study else "not run"
        ran_twin = f"[run](twins.md#{file})" if _twin(study) in results else f"[{tried}](#{file})"
        rest = f"`{file}.toml` | {ran} | {ran_twin}"
        yield from (f"| {file[:3]} | {it} | {rest} |" for it in study["shows"])
    for study in studies:
        yield f"\n### {study['file']}\n"
        if "says" in study:
            yield f"The paper: {study['says']}\n"
        yield f"Here: {study['differs']}\n"
        yield from _beside(study, results)


def _twin_lines(studies: list[dict[str, Any]], results: Results) -> Iterator[str]:
    for study in studies:
        twin = _twin(study)
        if twin in results:
            yield f"### {study['file']}\n"
            tables = [twin, *(f"{twin}.{name}" for name in study.get("also", []))]
            yield from (to_markdown(results[name]) for name in tables if name in results)
            if means := study.get("means"):
                yield from _over_tasks(means, results)


def _over_tasks(means: Mapping[str, Any], results: Results) -> Iterator[str]:
    """One column of a table of several twins, and its mean over them, for the rows all have."""
    names = [f"{task}-small.{means['table']}" for task in means["of"]]
    if not all(name in results for name in names):
        return
    columns = [_column(results[name], means["column"]) for name in names]
    heads = ("Method", *means["of"], "mean")
    rows = []
    for title in columns[0]:
        if all(title in column for column in columns):
            values = [float(column[title]) for column in columns]
            texts = [title, *(f"{value:.2f}" for value in (*values, fmean(values)))]
            rows.append(tuple(map(Entry, texts)))
    first = results[names[0]]
    yield to_markdown(Sheet("means", f"{first.title}, by tasks", first.caption, heads, tuple(rows)))


def _column(sheet: Sheet, head: str) -> dict[str, str]:
    """The last column with this head, by rows."""
    place = len(sheet.heads) - 1 - sheet.heads[::-1].index(head)
    return {row[0].text: row[place].text for row in sheet.rows}


def _beside(study: dict[str, Any], results: Results) -> Iterator[str]:
    """A row for each of the paper's numbers, with ours beside it and their seeds in brackets."""
    ours = _ours(study, results)
    if _twin(study) not in results:
        tried = study.get("tried")
        yield f"Twin: tried with {tried}.\n" if tried else "Twin: not run.\n"
    if "said" not in study:
        return
    heads = [f"paper: {study['measure']}", *(f"{name}: {head}" for name, head in ours)]
    yield f"| | {' | '.join(heads)} |\n|---|{'---:|' * len(heads)}"
    rows = [_rows(results[name], head) for name, head in ours]
    for title, said in study["said"].items():
        called = study.get("called", {}).get(title, title)
        cells = [each.get(title) or each.get(called, "–") for each in rows]
        yield f"| {title} | {' | '.join([f'{said:.2f}', *cells])} |"


def _twin(study: Mapping[str, Any]) -> str:
    return f"{study['file']}-small"


def _wanted(study: dict[str, Any]) -> list[list[str]]:
    """Studies of ours, and the head of the column that the paper has, too."""
    return [[_twin(study), "mean"], *study.get("ours", [])]


def _ours(study: dict[str, Any], results: Results) -> list[list[str]]:
    """Those of them that ran here."""
    return [[name, head] for name, head in _wanted(study) if name in results]


def _rows(sheet: Sheet, head: str) -> dict[str, str]:
    place, seeds = sheet.heads.index(head), sheet.heads.index("seeds")
    found = {}
    for row in sheet.rows:
        spread = f" ± {row[place].spread}" if row[place].spread else ""
        found[row[0].text] = f"{row[place].text}{spread} (seed {row[seeds].text})"
    return found
