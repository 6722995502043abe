"""The lines of a run folder's scores.csv."""

import csv
import io
from collections.abc import Iterable
from typing import Final, get_args

from polyclinic.runs.files import RunError
from polyclinic.runs.records import Score, Split

HEADER: Final = ",".join(Score._fields)
OLD_HEADER: Final = ",".join(Score._fields[:-1])  # of runs that do not tell patients apart


def to_lines(rows: Iterable[Score]) -> str:
    """The scores as lines of a file."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def read_score(line: str, where: str) -> Score:
    """The score in a line; an error names where it stands."""
    try:
        (row,) = csv.reader([line])
        number, split, site, case, region, metric, value, *patient = row
        if split not in get_args(Split):
            raise ValueError(f"split {split!r} is neither val nor test")
        (whose,) = map(int, patient or ["0"])
        return Score(int(number), split, site, case, region, metric, float(value), whose)  # type: ignore[arg-type]
    except (ValueError, csv.Error) as error:
        raise RunError(f"{where} is not a score: {error}") from error
