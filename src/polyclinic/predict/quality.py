"""How far a prediction can be trusted: what is unusual about it, measured against known cases.

Each measure is 0 where nothing is odd. What is usual comes from cases that the model did not train
on: the middle one's value, and the limit that one case in twenty exceeds.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polyclinic.data.tasks import Task
from polyclinic.masks import Mask
from polyclinic.predict.facts import Limit, QualityFacts

BINS = 32  # of a histogram, for each channel
UNUSUAL = 0.95  # the share of known cases that are not
LEAST_SHARE = 1e-3  # of an image: regions below it are as good as empty
# A limit is at least so far above the middle: a few known cases that all agree prove little.
MARGINS = {"size": 0.2, "flips": 0.02, "members": 0.02, "unsure": 0.02, "image": 0.01}
SIZE, FLIPS, MEMBERS, UNSURE, IMAGE = MARGINS
DISAGREEMENTS = (FLIPS, MEMBERS, UNSURE)  # of a model with itself


@dataclass(frozen=True)
class Note:
    """What is doubtful about a prediction: reasons, the measures, and all of them in one number.

    It is 0 in the middle of known cases, below 0 for a surer one, 1 where the model disagrees with
    itself as much as in one known case of twenty, and not a number where nothing is known.
    """

    doubt: float
    reasons: tuple[str, ...]
    measures: Mapping[str, float]

    def __str__(self) -> str:
        return "; ".join(self.reasons)


def histogram(prepared: NDArray[np.floating], task: Task) -> NDArray[np.float64]:
    """The shares of a prepared image's (C×R×R) pixels in each bin, channel after channel."""
    low, high = (-3.0, 3.0) if task.normalisation in ("standard", "channelwise") else (0.0, 1.0)
    places = (np.clip(prepared, low, high) - low) * (BINS / (high - low))
    bins = np.minimum(places.astype(np.int64), BINS - 1)
    counts = [np.bincount(channel.ravel(), minlength=BINS) for channel in bins]
    return np.concatenate([count / count.sum() for count in counts])


def sizes(classes: Mask, task: Task) -> dict[str, float]:
    """The share of each region in a class map."""
    return {
        region: float(np.isin(classes, numbers).mean()) for region, numbers in task.regions.items()
    }


def disagreement(first: Mask, second: Mask, task: Task) -> float:
    """How little two class maps have in common: 1 minus their Dice, mean over the regions."""
    apart = []
    for numbers in task.regions.values():
        one, other = np.isin(first, numbers), np.isin(second, numbers)
        total = np.count_nonzero(one) + np.count_nonzero(other)
        common = np.count_nonzero(one & other)
        apart.append(1 - 2 * common / total if total else 0.0)
    return float(np.mean(apart))


def uncertainty(probabilities: NDArray[np.floating], classes: Mask, task: Task) -> float:
    """How little of a class map (R×R) its own probabilities (K×R×R) stand for: 1 minus their Dice.

    That is the Dice that the model itself expects, mean over the regions.
    """
    apart = []
    for numbers in task.regions.values():
        here, chance = np.isin(classes, numbers), probabilities[list(numbers)].sum(axis=0)
        total = np.count_nonzero(here) + float(chance.sum())
        apart.append(1 - 2 * float(chance[here].sum()) / total if total else 0.0)
    return float(np.mean(apart))


def disagreements(
    mean: Mask,
    common: NDArray[np.floating],
    mirrored: tuple[Mask, Sequence[Mask]],
    members: Sequence[Mask],
    task: Task,
) -> dict[str, float]:
    """How far a model disagrees with itself, by measure, about one case.

    `common` are the mean probabilities of all members, `mean` their likeliest classes; `mirrored`
    is what mirrored images gave, turned back, behind what it is compared with.
    """

    def apart(mask: Mask, others: Sequence[Mask]) -> float:
        return float(np.mean([disagreement(mask, other, task) for other in others]))

    found = {FLIPS: apart(*mirrored)} if mirrored[1] else {}
    found[UNSURE] = uncertainty(common, mean, task)
    if len(members) > 1:
        found[MEMBERS] = apart(mean, members)
    return found


def likeliest(probabilities: NDArray[np.floating]) -> Mask:
    """The class (…×R×R) with the highest probability (…×K×R×R)."""
    return probabilities.argmax(axis=-3).astype(np.uint8)


def image_distance(found: NDArray[np.float64], usual: Sequence[float]) -> float:
    """How far grey levels must be moved to make one histogram the other, mean over channels."""
    apart = (found - np.asarray(usual)).reshape(-1, BINS)
    return float(np.abs(np.cumsum(apart, axis=1)).mean())


def size_distance(found: Mapping[str, float], usual: Mapping[str, Limit]) -> float:
    """How many times larger or smaller than usual the oddest region is, as a logarithm."""
    ratios = [
        math.log((share + LEAST_SHARE) / (usual[region].middle + LEAST_SHARE))
        for region, share in found.items()
        if region in usual
    ]
    return max(map(abs, ratios), default=0.0)


def limits(known: Sequence[Mapping[str, float]]) -> dict[str, Limit]:
    """What is usual of each measure on known cases."""
    found = {}
    for name in known[0] if known else ():
        values = [case[name] for case in known]
        middle = float(np.median(values))
        limit = float(np.quantile(values, UNUSUAL))
        found[name] = Limit(middle=middle, limit=max(limit, middle + MARGINS.get(name, 0.0)))
    return found


def judge(
    facts: QualityFacts | None,
    shares: Mapping[str, float],
    pixels: NDArray[np.float64],
    apart: Mapping[str, float],
) -> Note:
    """The note on a prediction: shares of regions, histogram, and disagreements by name."""
    if facts is None or not facts.limits:
        return Note(math.nan, ("nothing is known that it could be compared with",), {})
    measures = {
        SIZE: size_distance(shares, facts.sizes),
        IMAGE: image_distance(pixels, facts.histogram),
        **apart,
    }
    over = {
        name: (measures[name] - usual.middle) / (usual.limit - usual.middle)
        for name, usual in facts.limits.items()
        if name in measures
    }
    reasons = [
        sentence
        for name, number in over.items()
        if number > 1
        for sentence in _reasons(name, shares, facts)
    ]
    return Note(_doubt(over), tuple(reasons), measures)


def _doubt(over: Mapping[str, float]) -> float:
    """The mean of what the model says of itself, and what is beyond the limits in the rest.

    Decision 092 says how this rule was chosen.
    """
    own = [number for name, number in over.items() if name in DISAGREEMENTS]
    beyond = [max(number - 1, 0.0) for name, number in over.items() if name not in DISAGREEMENTS]
    return float(np.mean(own or [0.0])) + sum(beyond)


def _reasons(name: str, shares: Mapping[str, float], facts: QualityFacts) -> Iterable[str]:
    if name != SIZE:
        yield _WORDS[name]
        return
    for region, share in shares.items():
        usual = facts.sizes[region].middle
        ratio = math.log((share + LEAST_SHARE) / (usual + LEAST_SHARE))
        if abs(ratio) > facts.limits[SIZE].limit:
            kind = "unusually large" if ratio > 0 else "unusually small" if share else "empty"
            yield f"{region} is {kind}: {share:.2%} of the image, usually {usual:.2%}"


_WORDS = {
    FLIPS: "the mirrored image gives another mask",
    MEMBERS: "the models of the ensemble disagree",
    UNSURE: "the model is unsure of its own mask",
    IMAGE: "the image is unlike the training images",
}
