"""How far a mean can be off: bootstrap intervals over patients, whose cases are no strangers."""

from collections.abc import Hashable, Sequence

import numpy as np

DRAWS = 2000
SHARE = 0.95


def bootstrap_interval(
    values: Sequence[float], groups: Sequence[Hashable], *, seed: int = 0
) -> tuple[float, float]:
    """The percentile interval (95 %) of the mean of values, whole groups being drawn anew.

    Each draw takes as many groups as there are, with repetition. One group alone gives no interval
    but the mean itself, twice.
    """
    if not len(values) or len(values) != len(groups):
        raise ValueError(f"{len(values)} values need as many groups, got {len(groups)}")
    numbers = {group: number for number, group in enumerate(dict.fromkeys(groups))}
    places = [numbers[group] for group in groups]
    sums = np.bincount(places, weights=np.asarray(values, dtype=np.float64))
    counts = np.bincount(places)
    rng = np.random.default_rng(seed)
    drawn = rng.multinomial(len(counts), np.full(len(counts), 1 / len(counts)), size=DRAWS)
    means = (drawn @ sums) / (drawn @ counts)
    low, high = np.quantile(means, [(1 - SHARE) / 2, (1 + SHARE) / 2])
    return float(low), float(high)
