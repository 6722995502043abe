"""What leaves a site beside messages: its scores."""

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from polyclinic.data.cases import Cases
from polyclinic.engine.sites import Row
from polyclinic.evaluation.scoring import ScoreRow
from polyclinic.runs import Split

DIGITS = 3  # of a mean after the point: too few to see a single pixel in it


def leaving_scores(
    form: Literal["cases", "mean"],
    split: Split,
    rows: Sequence[ScoreRow],
    cases: Cases,
    notes: Mapping[str, float],
) -> tuple[tuple[Row, ...], dict[str, float]]:
    """The scores and notes as they leave: of each case, or their means alone."""
    if form == "mean":
        pairs = dict.fromkeys((row.region, row.metric) for row in rows)
        values = {pair: [r.value for r in rows if (r.region, r.metric) == pair] for pair in pairs}
        means = {pair: round(float(np.mean(each)), DIGITS) for pair, each in values.items()}
        return tuple((f"{split} mean", *pair, value, 0) for pair, value in means.items()), {}
    # A case's name may be a patient's number, so only its place among the cases leaves; which
    # cases are of one patient is told by numbers that were given in the order of the cases.
    aliases = {name: f"{split} {place}" for place, name in enumerate(cases.names, 1)}
    return tuple((aliases[row.case], *row[1:]) for row in rows), dict(notes)
