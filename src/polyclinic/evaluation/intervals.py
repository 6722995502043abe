"""How far a mean can be off: bootstrap intervals over patients, whose cases are no strangers."""

import math
from collections.abc import Hashable, Sequence
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

DRAWS = 4000
SHARE = 0.95
LEAST = 3  # patients of a site
FREEDOM = 7.5  # degrees of it; with fewer, intervals hold the truth too seldom
SKEW = 2  # degrees that scores lose because most are high and few are low; found by simulation
NONE_FOR_FEW = (
    "– stands where patients are too few for an interval: fewer than 9 at a single site, and for a "
    "mean over sites fewer than 5 at each of two, 4 at each of three or 3 at any."
)

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
    section 3.3). Where even that would not do it is NaN.
    """
    return bootstrap_intervals([values], groups, sites, seed=seed)[0]


def bootstrap_intervals(
    rows: Sequence[Sequence[float]],
    groups: Sequence[Hashable],
    sites: Sequence[Hashable] | None = None,
    *,
    seed: int = 0,
) -> list[tuple[float, float]]:
    """The interval of each row of values, which are of the same groups and sites: the same draws.

    Each is the one that the row would have alone.
    """
    table = np.asarray(rows, np.float64)
    if not table.size or table.shape[1] != len(groups):
        raise ValueError(f"{table.shape[1]} values need as many groups, got {len(groups)}")
    owners = np.array(_numbers(sites if sites is not None else [0] * len(groups)))
    numbers = np.array(_numbers(list(zip(owners.tolist(), groups, strict=True))))
    counts = np.bincount(owners[np.unique(numbers, return_index=True)[1]])
    if counts.min() < LEAST or _freedom(1 / counts, counts) < FREEDOM:
        return [(math.nan, math.nan)] * len(table)
    rng = np.random.default_rng(seed)
    means, variances = np.zeros((DRAWS, len(table))), []
    for site, count in enumerate(counts.tolist()):
        own = owners == site
        sums, sizes = _by_group(table[:, own], numbers[own])
        times = _times_drawn(rng, count)
        means += times @ sums / (times @ sizes) / len(counts)
        apart = (sums - sizes * sums.sum(0) / sizes.sum()) / sizes.mean()
        variances.append((apart**2).sum(0) / count / (count - 1))
    edges = [_tail(each, counts) for each in np.transpose(variances)]
    ends = (np.quantile(m, [e, 1 - e]) for m, e in zip(means.T, edges, strict=True))
    return [(float(low), float(high)) for low, high in ends]


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


def _by_group(table: Numbers, numbers: NDArray[np.intp]) -> tuple[Numbers, Numbers]:
    """The sums (groups × rows) and sizes (groups × 1) of the groups in a table's rows."""
    places = np.unique(numbers, return_inverse=True)[1]
    sums: Numbers = np.stack([np.bincount(places, row) for row in table], axis=1, dtype=np.float64)
    return sums, np.bincount(places).astype(np.float64)[:, None]


def _times_drawn(rng: np.random.Generator, count: int) -> Numbers:
    """How often each of so many groups is in each draw: DRAWS × groups."""
    drawn = rng.integers(count, size=(DRAWS, count)) + count * np.arange(DRAWS)[:, None]
    times = np.bincount(drawn.ravel(), minlength=DRAWS * count)
    return times.reshape(DRAWS, count).astype(np.float64)


def _tail(variances: Numbers, counts: NDArray[np.intp]) -> float:
    """The share of draws below the interval, so that it is as long as Student's would be.

    `variances` are those of the sites' means; drawing anew makes them too small, each by its
    number of groups.
    """
    usual = (1 - SHARE) / 2
    drawn = float(variances @ ((counts - 1) / counts))
    if drawn <= 0:
        return usual
    wider = float(np.sqrt(variances.sum() / drawn))
    freedom = max(_freedom(variances, counts) - SKEW, 2.5)
    return NormalDist().cdf(-t_quantile(1 - usual, freedom) * wider)


def _freedom(variances: Numbers, counts: NDArray[np.intp]) -> float:
    """Satterthwaite's degrees of freedom of a sum of means with these variances."""
    return float(variances.sum() ** 2 / (variances**2 @ (1 / (counts - 1))))
