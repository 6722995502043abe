"""How far a mean can be off: bootstrap intervals over patients, whose cases are no strangers."""

from collections.abc import Hashable, Sequence
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

DRAWS = 4000
SHARE = 0.95

Numbers = NDArray[np.float64]


def bootstrap_interval(
    values: Sequence[float],
    groups: Sequence[Hashable],
    sites: Sequence[Hashable] | None = None,
    *,
    seed: int = 0,
) -> tuple[float, float]:
    """The interval (95 %) of the mean of values, whole groups (patients) being drawn anew.

    Each draw takes as many groups as there are, with repetition. With `sites` it is the interval
    of the mean over sites of their means, and groups are drawn within their site. Few groups
    would give too short an interval, so the percentiles are moved outwards (Hesterberg 2015,
    section 3.3). Where no site has two groups it is the mean itself, twice.
    """
    if not len(values) or len(values) != len(groups):
        raise ValueError(f"{len(values)} values need as many groups, got {len(groups)}")
    owners = np.array(_numbers(sites if sites is not None else [0] * len(values)))
    numbers = np.array(_numbers(list(zip(owners.tolist(), groups, strict=True))))
    rng = np.random.default_rng(seed)
    means, variances, counts = [], [], []
    for site in range(int(owners.max()) + 1):
        sums, sizes = _by_group(np.asarray(values, np.float64), numbers, owners == site)
        count = len(sums)
        drawn = rng.integers(count, size=(DRAWS, count))
        means.append(sums[drawn].sum(1) / sizes[drawn].sum(1))
        apart = (sums - sizes * sums.sum() / sizes.sum()) / sizes.mean()
        variances.append(float(apart @ apart) / count / max(count - 1, 1))
        counts.append(count)
    edge = _tail(np.array(variances), np.array(counts))
    low, high = np.quantile(np.mean(means, axis=0), [edge, 1 - edge])
    return float(low), float(high)


def t_quantile(share: float, freedom: float) -> float:
    """Student's t below which this share lies, by Cornish and Fisher; within 1 % from 3 degrees.

    Models are evaluated where there is no scipy.
    """
    z = NormalDist().inv_cdf(share)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return z + sum(term / freedom**power for power, term in enumerate(terms, 1))


def _numbers(names: Sequence[Hashable]) -> list[int]:
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return [numbers[name] for name in names]


def _by_group(
    values: Numbers, numbers: NDArray[np.intp], own: NDArray[np.bool_]
) -> tuple[Numbers, Numbers]:
    """The sums and sizes of the groups of a site's own values."""
    places = np.unique(numbers[own], return_inverse=True)[1]
    sums: Numbers = np.bincount(places, weights=values[own]).astype(np.float64)
    return sums, np.bincount(places).astype(np.float64)


def _tail(variances: Numbers, counts: NDArray[np.intp]) -> float:
    """The share of draws below the interval, so that it is as long as Student's would be.

    `variances` are those of the sites' means; drawing anew makes them too small, each by its
    number of groups. Degrees of freedom are Satterthwaite's.
    """
    usual = (1 - SHARE) / 2
    drawn = float(variances @ ((counts - 1) / counts))
    if drawn <= 0:
        return usual
    freedom = variances.sum() ** 2 / float(variances**2 @ (1 / np.maximum(counts - 1, 1)))
    wider = float(np.sqrt(variances.sum() / drawn))
    return NormalDist().cdf(-t_quantile(1 - usual, float(freedom)) * wider)
