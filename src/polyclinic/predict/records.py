"""What is noted about each predicted case: lines that a stopped command continues from."""

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from polyclinic.runs.files import append_lines, complete_lines

LINES = "cases.jsonl"


class Extent(BaseModel):
    """How much of a case one class is; millimetres where they are known."""

    pixels: int
    area: float | None = None  # mm², of a picture or a single slice
    volume: float | None = None  # mm³


class Record(BaseModel):
    """One case: its files, what was written, what was measured, and the note on it."""

    model_config = ConfigDict(frozen=True)

    case: str
    files: tuple[str, ...]
    stamp: tuple[tuple[int, int], ...]  # bytes and time of change of each file
    mask: str
    overlay: str
    size: tuple[int, int, int]  # slices, rows, columns
    shown: int  # the slice that the overlay shows
    extents: dict[str, Extent]
    doubt: float | None
    reasons: tuple[str, ...]
    seconds: float


class Records:
    """The lines of a folder of predictions, the first of which says what made them."""

    def __init__(self, folder: Path, maker: dict[str, Any]) -> None:
        self.path = folder / LINES
        self.maker = json.loads(json.dumps(maker))

    def begin(self, *, fresh: bool) -> dict[str, Record]:
        """The cases that were done before, by name; another model's are refused, or forgotten."""
        if fresh:
            self.path.unlink(missing_ok=True)
        lines = complete_lines(self.path)
        if lines and json.loads(lines[0]) != self.maker:
            raise ValueError(
                f"{self.path.parent} holds predictions of another model or with other options; "
                "choose another folder, or replace them with --fresh"
            )
        if not lines:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            append_lines(self.path, json.dumps(self.maker) + "\n")
        done = (Record.model_validate_json(line) for line in lines[1:])
        return {record.case: record for record in done}

    def add(self, record: Record) -> None:
        """Note a case that is done; on disk when this returns."""
        append_lines(self.path, record.model_dump_json() + "\n")


def stamp(files: Iterable[Path]) -> tuple[tuple[int, int], ...]:
    """By what a change of files is noticed."""
    return tuple((file.stat().st_size, file.stat().st_mtime_ns) for file in files)


def finite(value: float) -> float | None:
    """The number, or None where it is none."""
    return value if math.isfinite(value) else None
