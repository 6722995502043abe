"""Scores of a run's models at sites whose cases they did not learn from: CSV files of its folder.

`cross_site.csv` is every site's model at every site, `unseen-<site>.csv` a site that took no part.
"""

import csv
from collections.abc import Iterable
from typing import Final, NamedTuple

from polyclinic.runs.files import RunError, clear_errors, csv_text
from polyclinic.runs.folder import RunFolder
from polyclinic.runs.names import slug
from polyclinic.runs.reading import warn_if_changed

CROSS_SITE: Final = "cross_site"
ENSEMBLE, SHARED, ROUTED = "ensemble", "shared model", "routed"
REESTIMATED = "statistics re-estimated"
TUNED, DECODER = "private part tuned", "decoder tuned"
WAYS: Final = (ENSEMBLE, SHARED, REESTIMATED, ROUTED, TUNED, DECODER)
"""What is tried at an unseen site beside each site's model, in the order of tables."""


class GuestScore(NamedTuple):
    """One metric of one region of one of a site's test cases, by a model of the run.

    The model is called as the site it is of, or by what was made of several or at the site itself.
    """

    model: str
    site: str
    case: str
    region: str
    metric: str
    value: float
    patient: int = 0


def write_guests(run: RunFolder, rows: Iterable[GuestScore], unseen: str = "") -> None:
    """Write scores at every site, or at the one that is unseen, as a whole."""
    name = f"unseen-{slug(unseen)}" if unseen else CROSS_SITE
    run.write_atomic(f"{name}.csv", csv_text([GuestScore._fields, *rows]))


def read_guests(run: RunFolder, *, unseen: bool) -> list[GuestScore]:
    """All scores at every site, or at those that are unseen; none where there is no file."""
    rows = []
    for path in sorted(run.path.glob("unseen-*.csv" if unseen else f"{CROSS_SITE}.csv")):
        warn_if_changed(path)
        with clear_errors(path, "read"), path.open(newline="", encoding="utf-8") as file:
            for line in csv.DictReader(file):
                try:
                    value, patient = float(line.pop("value")), int(line.pop("patient"))
                    rows.append(GuestScore(**line, value=value, patient=patient))
                except (KeyError, TypeError, ValueError) as error:
                    raise RunError(f"{path} holds no scores of models: {error!r}") from error
    return rows
