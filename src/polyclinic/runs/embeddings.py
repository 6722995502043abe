"""Embeddings of some pixels of a site, as a CSV: moment, class, then a column for each channel."""

from collections.abc import Iterable
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from polyclinic.runs.files import RunError, complete_lines
from polyclinic.runs.reading import warn_if_changed
from polyclinic.runs.sums import write_noted

Moment = Literal["before", "after"]
_FIRST = ("moment", "class")


class Embedded(NamedTuple):
    """The classes of pixels, and what the network's head sees of them (pixels × channels)."""

    moment: Moment  # before or after training
    classes: NDArray[np.int64]
    values: NDArray[np.float64]


def write_embeddings(path: Path, tables: Iterable[Embedded]) -> None:
    """Write the embeddings of a site, all in one file, with five digits each."""
    found = list(tables)
    channels = found[0].values.shape[1]
    lines = [",".join([*_FIRST, *map(str, range(channels))])]
    for table in found:
        for number, row in zip(table.classes, table.values, strict=True):
            lines.append(",".join([table.moment, str(number), *(f"{value:.5g}" for value in row)]))
    write_noted(path, "\n".join(lines) + "\n")


def read_embeddings(path: Path) -> list[Embedded]:
    """The embeddings of a site, before and after training; none where there is no file."""
    warn_if_changed(path)
    lines = [line.split(",") for line in complete_lines(path)]
    if not lines:
        return []
    try:
        if tuple(lines[0][:2]) != _FIRST:
            raise ValueError(f"it should begin with {','.join(_FIRST)}")
        tables = (_table(moment, lines[1:], len(lines[0])) for moment in get_args(Moment))
        return [table for table in tables if len(table.classes)]
    except ValueError as error:
        raise RunError(f"{path} holds no embeddings: {error}") from error


def _table(moment: Moment, lines: list[list[str]], width: int) -> Embedded:
    rows = [line[1:] for line in lines if line[0] == moment]
    numbers = np.array(rows, dtype=np.float64).reshape(len(rows), width - 1)
    return Embedded(moment, numbers[:, 0].astype(np.int64), numbers[:, 1:])
