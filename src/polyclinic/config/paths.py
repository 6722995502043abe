"""Paths in a TOML file, which are relative to the file."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from polyclinic.config.mistakes import Mistake


def make_absolute(
    table: Any,
    names: Iterable[str] | None,
    beside: Path,
    mistakes: list[Mistake],
    prefix: str = "",
) -> None:
    """Makes these paths of a table, or all of it, absolute in place; other checks tell the rest."""
    if not isinstance(table, dict):
        return
    for name in list(table) if names is None else names:
        path = table.get(name)
        if path == "":
            mistakes.append(Mistake(f"{prefix}{name}", "must not be empty", '""'))
        elif isinstance(path, str):
            table[name] = _beside(path, beside)
        elif isinstance(path, list):
            table[name] = [
                _beside(each, beside) if isinstance(each, str) else each for each in path
            ]


def _beside(path: str, beside: Path) -> str:
    return str((beside / Path(path).expanduser()).resolve())
