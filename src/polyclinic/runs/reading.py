"""Reading a run's text files: what is broken or was changed is told, never taken silently."""

import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from polyclinic.runs.files import RunError, clear_errors, complete_lines
from polyclinic.runs.sums import changed

_Record = TypeVar("_Record", bound=BaseModel)
_Line = TypeVar("_Line")

log = logging.getLogger("polyclinic.runs")


def records(model: type[_Record], path: Path) -> list[_Record]:
    """One record for each line of a file."""
    return list(whole_lines(path, lambda line, where: _validated(model, line, where)))


def whole_lines(
    path: Path, read: Callable[[str, str], _Line], but: Sequence[str] = ()
) -> Iterator[_Line]:
    """What the lines of a file say; one that is broken is named and left out."""
    warn_if_changed(path)
    for number, line in enumerate(complete_lines(path), start=1):
        where = f"line {number} of {path}"
        try:
            if "\ufffd" in line:
                raise RunError(f"{where} is broken: it is not text")
            if number > 1 or line not in but:
                yield read(line, where)
        except RunError as error:
            log.warning("warning: %s; the line is left out", error)


def parsed(model: type[_Record], path: Path) -> _Record:
    """The one record that a file holds."""
    return _validated(model, whole_text(path), str(path))


def whole_text(path: Path) -> str:
    """The text of a file that every run has."""
    if not path.exists():
        raise RunError(f"{path.parent} is not a complete run folder: it has no {path.name}")
    warn_if_changed(path)
    with clear_errors(path, "read"):
        try:
            return path.read_text("utf-8")
        except UnicodeDecodeError as error:
            raise RunError(f"{path} is not text: {error}") from error


def warn_if_changed(path: Path) -> None:
    """Say that a file holds other than what a run wrote."""
    if changed(path):
        log.warning("warning: %s is not as it was written; it was changed or damaged since", path)


def _validated(model: type[_Record], text: str, where: str) -> _Record:
    try:
        return model.model_validate_json(text)
    except ValidationError as error:
        mistakes = "; ".join(
            f"{'.'.join(map(str, mistake['loc'])) or 'content'}: {mistake['msg']}"
            for mistake in error.errors()
        )
        raise RunError(f"{where} is broken: {mistakes}") from error
