"""Methods in the order of their scores, with what chance alone could have made of them.

The unit is the case: its score is the mean over regions and seeds, a method's score the mean over
sites of the mean over cases. Seeds are never counted as cases.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

DRAWS = 4000
SHARE = 0.95

Values = Mapping[str, Mapping[str, float]]
"""Site → case → value."""


@dataclass(frozen=True)
class Ranked:
    """A method's score with its interval, and its distance from the best one.

    `chance` is how often sign flips alone give such a distance, corrected by Holm over all methods
    compared with the best; 1 for the best itself.
    """

    title: str
    score: float
    low: float
    high: float
    behind: float
    chance: float

    @property
    def within_noise(self) -> bool:
        """Whether the distance from the best may be chance."""
        return self.chance >= 1 - SHARE


def ranking(methods: Mapping[str, Values], *, higher: bool) -> list[Ranked]:
    """The methods from best to worst, scored on the cases that all of them have."""
    cases = _common(methods)
    if not cases:
        return []
    numbers = {
        title: [np.array([values[site][case] for case in names]) for site, names in cases.items()]
        for title, values in methods.items()
    }
    scores = {title: _score(sites) for title, sites in numbers.items()}
    order = sorted(scores, key=lambda title: scores[title], reverse=higher)
    best, *others = order
    chances = holm([_chance(numbers[best], numbers[title]) for title in others])
    return [
        Ranked(title, scores[title], *_interval(numbers[title]), scores[best] - scores[title], p)
        for title, p in zip(order, [1.0, *chances], strict=True)
    ]


def holm(chances: Sequence[float]) -> list[float]:
    """Probabilities corrected for so many comparisons, step by step from the smallest."""
    corrected = [1.0] * len(chances)
    largest = 0.0
    for rank, place in enumerate(np.argsort(chances, kind="stable")):
        largest = max(largest, min(1.0, (len(chances) - rank) * chances[place]))
        corrected[place] = largest
    return corrected


def _common(methods: Mapping[str, Values]) -> dict[str, list[str]]:
    """The cases of every site that all methods have scores of."""
    first, *others = methods.values()
    found = {
        site: [case for case in cases if all(case in each.get(site, {}) for each in others)]
        for site, cases in first.items()
    }
    return {site: cases for site, cases in found.items() if cases}


def _score(sites: Sequence[NDArray[np.float64]]) -> float:
    return float(np.mean([values.mean() for values in sites]))


def _interval(sites: Sequence[NDArray[np.float64]]) -> tuple[float, float]:
    """The percentile interval of a method's score, cases being drawn anew within each site."""
    rng = np.random.default_rng(0)
    means = [
        values[rng.integers(len(values), size=(DRAWS, len(values)))].mean(1) for values in sites
    ]
    low, high = np.quantile(np.mean(means, axis=0), [(1 - SHARE) / 2, (1 + SHARE) / 2])
    return float(low), float(high)


def _chance(one: Sequence[NDArray[np.float64]], other: Sequence[NDArray[np.float64]]) -> float:
    """How often differences with random signs lie as far from nought, two-sided."""
    rng = np.random.default_rng(0)
    apart = [a - b for a, b in zip(one, other, strict=True)]
    flipped = np.mean(
        [rng.choice((-1.0, 1.0), size=(DRAWS, len(d))) @ d / len(d) for d in apart], axis=0
    )
    seen = abs(_score(apart)) * (1 - 1e-12)
    return float((1 + np.count_nonzero(np.abs(flipped) >= seen)) / (1 + DRAWS))
