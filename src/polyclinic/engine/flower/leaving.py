"""What leaves a site beside messages: its scores."""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np

from polyclinic.data.cases import Cases
from polyclinic.engine.sites import Row
from polyclinic.evaluation.scoring import ScoreRow
from polyclinic.runs import Split

SEVERAL = 3  # scores: of two, the mean and the deviation tell both
DIGITS = 3  # of a score after the point: too few to see a single pixel in it


class LeavingScores(NamedTuple):
    """Scores as they leave: rows, and where these are means, deviations over the cases."""

    rows: tuple[Row, ...]
    spreads: tuple[tuple[str, str, float], ...]  # region, metric, deviation
    notes: dict[str, float]


def leaving_scores(
    form: Literal["cases", "mean"],
    split: Split,
    rows: Sequence[ScoreRow],
    cases: Cases,
    notes: Mapping[str, float],
) -> LeavingScores:
    """The scores and notes as they leave: of each case, or their means and spreads alone."""
    if form == "cases":
        # A case's name may be a patient's number, so only its place among the cases leaves; which
        # cases are of one patient is told by numbers that were given in the order of the cases.
        aliases = {name: f"{split} {place}" for place, name in enumerate(cases.names, 1)}
        told = (r._replace(case=aliases[r.case], value=round(r.value, DIGITS)) for r in rows)
        return LeavingScores(tuple(told), (), dict(notes))
    pairs = dict.fromkeys((row.region, row.metric) for row in rows)
    values = {pair: [r.value for r in rows if (r.region, r.metric) == pair] for pair in pairs}
    means = [(f"{split} mean", *pair, _rounded(np.mean(each)), 0) for pair, each in values.items()]
    many = {pair: each for pair, each in values.items() if len(each) >= SEVERAL}
    spreads = [(*pair, _rounded(np.std(each))) for pair, each in many.items()]
    return LeavingScores(tuple(means), tuple(spreads), {})


def _rounded(value: np.floating) -> float:
    return round(float(value), DIGITS)
