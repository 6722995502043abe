"""Tests of paired differences: sign flips of patients, signed ranks of sites, Holm's correction."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

DRAWS = 10_000
FEWEST_SITES = 6  # with five the smallest two-sided p of signed ranks is 0.0625
_ALL = 13  # patients up to which every combination of signs is tried

Numbers = NDArray[np.float64]


def sign_flips(differences: Sequence[Numbers], patients: NDArray[np.intp]) -> list[float]:
    """How often sums with random signs lie as far from nought as the sum itself, two-sided.

    A row of `differences` holds one number for each case, weighted as it counts. All cases of a
    patient get the same sign. With few patients every combination of signs is tried, else so many
    are drawn that 0.05 is told to within 0.005, and the signs that were seen count as one of them.
    """
    count = int(patients.max()) + 1
    whole = np.zeros((len(differences), count))
    for row, values in zip(whole, differences, strict=True):
        row += np.bincount(patients, weights=values, minlength=count)
    if count <= _ALL:
        numbers = np.arange(2**count)[:, None] >> np.arange(count)
        signs = (1 - 2 * (numbers & 1)).astype(np.float64)
    else:
        signs = np.random.default_rng(0).choice((-1.0, 1.0), size=(DRAWS, count))
    seen = np.abs(whole.sum(1))
    # Sums in another order differ in their last bits.
    least = seen - 1e-12 * np.maximum(np.abs(whole).sum(1), 1e-300)
    as_far = np.count_nonzero(np.abs(signs @ whole.T) >= least, axis=0)
    own = int(count > _ALL)
    return [float((number + own) / (len(signs) + own)) for number in as_far]


def holm(chances: Sequence[float]) -> list[float]:
    """Probabilities corrected for so many comparisons, step by step from the smallest."""
    corrected = [1.0] * len(chances)
    largest = 0.0
    for rank, place in enumerate(np.argsort(chances, kind="stable")):
        largest = max(largest, min(1.0, (len(chances) - rank) * chances[place]))
        corrected[place] = largest
    return corrected


def site_chances(means: Mapping[str, Numbers], best: str) -> dict[str, float]:
    """Wilcoxon's signed ranks of the sites' means, each method against the best, after Holm.

    Nothing where there are fewer than six sites, or no scipy, as where models are only applied.
    """
    if len(means[best]) < FEWEST_SITES:
        return {}
    try:
        from scipy.stats import wilcoxon
    except ImportError:
        return {}

    others = [title for title in means if title != best]
    apart = [means[best] - means[title] for title in others]
    found = [float(wilcoxon(each).pvalue) if np.any(each) else 1.0 for each in apart]
    return dict(zip(others, holm(found), strict=True))
