"""The papers' tables and figures: the study for each, what the paper says, and what we got."""

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from polyclinic.report.sheets import Sheet

Results = Mapping[str, Sheet]


def papers(results: Results) -> str:
    """The matrix of papers.toml, then for each study the paper's numbers beside ours."""
    return "\n".join(_lines(_studies(), results))


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
        others = [name for name, _ in _ours(study, results) if name != f"{file}-small"]
        ran = ", ".join(f"[{name}](#{file})" for name in others) or "–"
        tried = "tried" if "tried" in study else "not run"
        twin = "run" if f"{file}-small" in results else tried
        rest = f"`{file}.toml` | {ran} | [{twin}](#{file})"
        yield from (f"| {file[:3]} | {it} | {rest} |" for it in study["shows"])
    for study in studies:
        yield f"\n### {study['file']}\n"
        if "says" in study:
            yield f"The paper: {study['says']}\n"
        yield f"Here: {study['differs']}\n"
        yield from _beside(study, results)


def _beside(study: dict[str, Any], results: Results) -> Iterator[str]:
    """A row for each of the paper's numbers, with ours beside it and their seeds in brackets."""
    ours = _ours(study, results)
    if f"{study['file']}-small" not in results:
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


def _wanted(study: dict[str, Any]) -> list[list[str]]:
    """Studies of ours, and the head of the column that the paper has, too."""
    return [[f"{study['file']}-small", "mean"], *study.get("ours", [])]


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
