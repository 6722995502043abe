"""What many scores say together, over cases, images, sites, regions and seeds; and separation.

Standard deviations over cases and sites are the population's (divisor n), as the papers print
them; those over seeds or folds, which are few, are the sample's (divisor n − 1).
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from polyclinic.runs import Score

OVERALL = "overall"
_LEAST = 1e-3  # of a feature's whole variance: one that a side never has must not outweigh all


@dataclass(frozen=True)
class Spread:
    """Mean and standard deviation of so many values."""

    mean: float
    std: float
    count: int


@dataclass(frozen=True)
class Summary:
    """One metric of one region: each site over its cases, all sites, all images.

    `average` and `deviation` are those of the sites' means, whatever their sizes; `images` counts
    every case once. Of one run the first two have no standard deviation (NaN); of several seeds
    each is the mean over the runs with the deviation (n − 1) from run to run.
    """

    sites: Mapping[str, Spread]
    average: Spread
    deviation: Spread
    images: Spread


def summarise(rows: Iterable[Score]) -> dict[str, dict[str, Summary]]:
    """Metric → region → summary, from the scores of one split after one round.

    The last region, "overall", scores each case by the mean over the regions it has.
    """
    values = _by_region_and_site(rows)
    return {
        metric: {
            region: _summary({site: list(cases.values()) for site, cases in sites.items()})
            for region, sites in _with_overall(regions).items()
        }
        for metric, regions in values.items()
    }


def across_seeds(summaries: Sequence[Summary]) -> Summary:
    """The spread over seeds, or folds, of each number in summaries of the same sites, one for each.

    The deviation is the sample's. One seed has none, which is not the same as one of nought.
    """
    if not summaries:
        raise ValueError("there is no summary to take the spread of")
    names = list(summaries[0].sites)
    for summary in summaries[1:]:
        if set(summary.sites) != set(names):
            raise ValueError(
                f"seeds must have the same sites, got {sorted(names)} and {sorted(summary.sites)}"
            )

    def over(spreads: Iterable[Spread]) -> Spread:
        means = [each.mean for each in spreads]
        few = len(means) < 2
        return Spread(
            float(np.mean(means)), math.nan if few else float(np.std(means, ddof=1)), len(means)
        )

    return Summary(
        sites={name: over(each.sites[name] for each in summaries) for name in names},
        average=over(each.average for each in summaries),
        deviation=over(each.deviation for each in summaries),
        images=over(each.images for each in summaries),
    )


def spread(values: Sequence[float]) -> Spread:
    """Mean and population standard deviation; at least one value."""
    if not len(values):
        raise ValueError("there are no values to take the mean of")
    return Spread(float(np.mean(values)), float(np.std(values)), len(values))


_Cases = dict[str, float]
_Sites = dict[str, _Cases]


def _by_region_and_site(rows: Iterable[Score]) -> dict[str, dict[str, _Sites]]:
    """Metric → region → site → case → value, each in the order of first sight."""
    values: dict[str, dict[str, _Sites]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(dict))
    )
    for row in rows:
        cases = values[row.metric][row.region][row.site]
        if row.case in cases:
            raise ValueError(
                f"case {row.case} of site {row.site} has two scores of {row.metric} for "
                f"{row.region}: give the scores of one round and one split"
            )
        cases[row.case] = row.value
    return values


def _with_overall(regions: Mapping[str, _Sites]) -> dict[str, _Sites]:
    if OVERALL in regions:
        raise ValueError(f'a region cannot be called "{OVERALL}": that is the mean over regions')
    collected: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for sites in regions.values():
        for site, cases in sites.items():
            for case, value in cases.items():
                collected[site][case].append(value)
    means = {
        site: {case: float(np.mean(values)) for case, values in cases.items()}
        for site, cases in collected.items()
    }
    return {**regions, OVERALL: means}


def _summary(sites: Mapping[str, Sequence[float]]) -> Summary:
    spreads = {site: spread(values) for site, values in sites.items()}
    means = spread([each.mean for each in spreads.values()])
    return Summary(
        sites=spreads,
        average=replace(means, std=math.nan),
        deviation=Spread(means.std, math.nan, means.count),
        images=spread([value for values in sites.values() for value in values]),
    )


def separation(features: NDArray[np.float64], foreground: NDArray[np.bool_]) -> float:
    """The KL divergence of foreground and background features (N×D), mean of both ways and of D.

    Each feature of each side is taken for normally distributed. 0 means that they cannot be told
    apart, larger that they can; not a number where a side has fewer than two pixels.
    """
    sides = features[foreground], features[~foreground]
    if min(map(len, sides)) < 2:
        return float("nan")
    least = _LEAST * features.var(0) + 1e-12
    (m1, v1), (m2, v2) = ((side.mean(0), np.maximum(side.var(0), least)) for side in sides)
    apart = (m1 - m2) ** 2
    return float(np.mean((v1 + apart) / v2 + (v2 + apart) / v1 - 2) / 4)
