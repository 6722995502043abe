"""Reads TOML files, says why one cannot be read, and makes the paths in it whole."""

import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from polyclinic.config.mistakes import ConfigError, Mistake, nearest

MAX_LENGTH, MAX_PARTS = 2**20, 100  # of a file, and of a key: Python's reader takes their square


def parsed_toml(text: str) -> dict[str, Any]:
    """What a TOML text says; TOMLDecodeError where it says nothing, or takes too long to say it."""
    if len(text) > MAX_LENGTH:
        raise tomllib.TOMLDecodeError(f"it is longer than {MAX_LENGTH:,} characters")
    for number, line in enumerate(text.splitlines(), 1):
        # A key stands before an equals sign, or alone in a line in brackets.
        if (
            not line.startswith("#")
            and max(part.count(".") for part in line.split("=")) > MAX_PARTS
        ):
            raise tomllib.TOMLDecodeError(f"line {number} has a key of more than {MAX_PARTS} parts")
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise tomllib.TOMLDecodeError("it is nested too deeply") from error


def read_toml(file: Path) -> dict[str, Any]:
    """The content of a TOML file; ConfigError says why it cannot be read."""
    content = b""
    try:
        content = file.read_bytes()
        return parsed_toml(content.decode("utf-8-sig"))
    except OSError as error:
        near = nearest(file.name, [other.name for other in file.parent.glob("*.toml")])
        meant = str(file.with_name(near)) if near else ""
        reason = (error.strerror or str(error)).lower()
        mistake = Mistake("the file", f"cannot be read: {reason}", meant=meant)
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        mistake = Mistake(f"line {line}", "is not UTF-8 text")
    except tomllib.TOMLDecodeError as error:
        mistake = Mistake("the file", f"is not valid TOML: {error}")
    raise ConfigError(file, [mistake])


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
