"""The papers' tables and figures: the study for each, what the paper says, and what we got."""

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from polyclinic.report.sheets import Sheet

Results = Mapping[str, Sheet]


def papers(results: Results) -> str:
    """The matrix of papers.toml, then for each study the paper's numbers beside ours."""
    text = (Path(__file__).parent / "papers.toml").read_text()
    return "\n".join(_lines(tomllib.loads(text)["study"], results))


def _lines(studies: list[dict[str, Any]], results: Results) -> Iterator[str]:
    yield "| paper | table or figure | study | run here |\n|---|---|---|---|"
    for study in studies:
        file = study["file"]
        ran = ", ".join(f"[{name}](#{file})" for name, _ in _ours(study, results)) or "no"
        yield from (f"| {file[:3]} | {it} | `{file}.toml` | {ran} |" for it in study["shows"])
    for study in studies:
        yield f"\n### {study['file']}\n"
        if "says" in study:
            yield f"The paper: {study['says']}\n"
        yield f"Here: {study['differs']}\n"
        yield from _beside(study, results)


def _beside(study: dict[str, Any], results: Results) -> Iterator[str]:
    """A row for each of the paper's numbers, with ours beside it and their seeds in brackets."""
    ours = _ours(study, results)
    if not ours:
        yield "Not run here.\n"
    if "said" not in study:
        return
    heads = [f"paper: {study['measure']}", *(f"{name}: {head}" for name, head in ours)]
    yield f"| | {' | '.join(heads)} |\n|---|{'---:|' * len(heads)}"
    rows = [_rows(results[name], head) for name, head in ours]
    for title, said in study["said"].items():
        called = study.get("called", {}).get(title, title)
        cells = [each.get(title) or each.get(called, "–") for each in rows]
        yield f"| {title} | {' | '.join([f'{said:.2f}', *cells])} |"


def _ours(study: dict[str, Any], results: Results) -> list[tuple[str, str]]:
    """The studies that ran here, and the head of the column that the paper has, too."""
    wanted = [[f"{study['file']}-small", "mean"], *study.get("ours", [])]
    return [(name, head) for name, head in wanted if name in results]


def _rows(sheet: Sheet, head: str) -> dict[str, str]:
    place, seeds = sheet.heads.index(head), sheet.heads.index("seeds")
    found = {}
    for row in sheet.rows:
        spread = f" ± {row[place].spread}" if row[place].spread else ""
        found[row[0].text] = f"{row[place].text}{spread} (seed {row[seeds].text})"
    return found
