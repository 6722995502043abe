"""The lines of a run folder's scores.csv."""

import csv
from typing import Final, get_args

from polyclinic.runs.files import RunError
from polyclinic.runs.records import Score, ScoredModel, Split

HEADER: Final = ",".join(Score._fields)
# Earlier versions did not tell patients apart, nor models.
HEADERS: Final = tuple(
    ",".join([*Score._fields[:7], *more])
    for more in ((), ("patient",), ("model",), ("patient", "model"))
)


def read_score(line: str, where: str) -> Score:
    """The score in a line; an error names where it stands."""
    try:
        (row,) = csv.reader([line])
        number, split, site, case, region, metric, value, *more = row
        models = [each for each in more if each in get_args(ScoredModel)]
        patients = [int(each) for each in more if each not in models]
        if split not in get_args(Split) or len(models) > 1 or len(patients) > 1:
            raise ValueError(f"{split!r} is no split, or {more} no patient and model")
        rest = (*(patients or [0]), *(models or ["shared"]))
        return Score(int(number), split, site, case, region, metric, float(value), *rest)  # type: ignore[arg-type]
    except (ValueError, csv.Error) as error:
        raise RunError(f"{where} is not a score: {error}") from error
