"""How well somebody tells training cases from others: areas, rates, and how far they can be off."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from polyclinic.evaluation.intervals import DRAWS, SHARE

RATES = (0.01, 0.05)  # of false positives at which true ones are counted
LEAST = 5  # patients on either side, two of them at every site, that an interval takes

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Evidence:
    """What an attack says of a site's cases: the higher, the more it takes a case for a member."""

    members: Sequence[float]
    member_patients: Sequence[Hashable]
    others: Sequence[float]
    other_patients: Sequence[Hashable]


class Estimate(NamedTuple):
    """A number and its 95 % interval; none where draws of so few patients would say nothing."""

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Success:
    """How well an attack tells members from others.

    `auc` is the chance that a member looks more like one than another case does, `found` the share
    of members found at each of the RATES of false positives.
    """

    auc: Estimate
    found: tuple[Estimate, ...]


def area(members: Sequence[float], others: Sequence[float]) -> float:
    """The area under the ROC curve; a tie counts half."""
    return float(_areas(_above(members, others), _once(members), _once(others))[0])


def found_at(members: Sequence[float], others: Sequence[float], rate: float) -> float:
    """The share of members above the lowest bar that at most this share of the others is above."""
    return float(_found(members, others, _once(members), _once(others), rate)[0])


def success(sites: Sequence[Evidence], *, seed: int = 0) -> Success:
    """What an attack achieves at sites with a bar of their own each, means being over members.

    Intervals are percentiles over draws of whole patients, of members and others apart.
    """
    if not sites or any(not len(each.members) or not len(each.others) for each in sites):
        raise ValueError("every site needs members and others to tell apart")
    rng = np.random.default_rng(seed)
    counts = np.array([len(each.members) for each in sites], np.float64)
    drawn = np.stack([_drawn(each, rng) for each in sites])  # sites × quantities × draws
    means = np.tensordot(counts, drawn, axes=1) / counts.sum()
    known = _enough([len(set(each.member_patients)) for each in sites]) and _enough(
        [len(set(each.other_patients)) for each in sites]
    )
    auc, *found = (_estimate(row, known=known) for row in means)
    return Success(auc, tuple(found))


def _enough(patients: Sequence[int]) -> bool:
    return min(patients) > 1 and sum(patients) >= LEAST


def _estimate(values: Numbers, *, known: bool) -> Estimate:
    if not known:
        return Estimate(float(values[0]), None, None)
    low, high = np.quantile(values[1:], [(1 - SHARE) / 2, (1 + SHARE) / 2])
    return Estimate(float(values[0]), float(low), float(high))


def _drawn(evidence: Evidence, rng: np.random.Generator) -> Numbers:
    """The area and the shares found, first of the cases as they are, then of every draw."""
    members, others = evidence.members, evidence.others
    ours = np.concatenate([_once(members), _draws(evidence.member_patients, rng)])
    theirs = np.concatenate([_once(others), _draws(evidence.other_patients, rng)])
    found = [_found(members, others, ours, theirs, rate) for rate in RATES]
    return np.stack([_areas(_above(members, others), ours, theirs), *found])


def _once(values: Sequence[float]) -> Numbers:
    return np.ones((1, len(values)))


def _draws(patients: Sequence[Hashable], rng: np.random.Generator) -> Numbers:
    """How often each case is in each draw of as many patients as there are."""
    numbers = {patient: number for number, patient in enumerate(dict.fromkeys(patients))}
    count = len(numbers)
    drawn = rng.multinomial(count, np.full(count, 1 / count), size=DRAWS)
    return drawn[:, [numbers[patient] for patient in patients]].astype(np.float64)


def _above(members: Sequence[float], others: Sequence[float]) -> Numbers:
    ours, theirs = np.asarray(members)[:, None], np.asarray(others)[None]
    return (ours > theirs) + 0.5 * (ours == theirs)


def _areas(above: Numbers, ours: Numbers, theirs: Numbers) -> Numbers:
    pairs = ours.sum(1) * theirs.sum(1)
    areas: Numbers = ((ours @ above) * theirs).sum(1) / pairs
    return areas


def _found(
    members: Sequence[float], others: Sequence[float], ours: Numbers, theirs: Numbers, rate: float
) -> Numbers:
    bars, places = np.unique(-np.asarray(others), return_inverse=True)  # the highest first
    at_bar = theirs @ np.eye(len(bars))[places]
    counts = np.cumsum(at_bar, axis=1) / theirs.sum(1, keepdims=True)
    lowest = np.argmax(counts > rate, axis=1)  # the first bar that too many others reach
    above = np.asarray(members)[None] > -bars[lowest][:, None]
    shares: Numbers = (ours * above).sum(1) / ours.sum(1)
    return shares
