"""What many scores say together: over cases, images, sites, regions and seeds.

Every standard deviation is the population's (divisor n), as the papers print it.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

OVERALL = "overall"


class SiteScore(Protocol):
    """One metric of one region of one case at a site, such as the rows of a run's `scores.csv`."""

    @property
    def site(self) -> str:
        """The site the case belongs to."""

    @property
    def case(self) -> str:
        """The case, a name of its own within the site."""

    @property
    def region(self) -> str:
        """What was segmented."""

    @property
    def metric(self) -> str:
        """The metric's name."""

    @property
    def value(self) -> float:
        """The metric's value."""


@dataclass(frozen=True)
class Spread:
    """Mean and population standard deviation of so many values."""

    mean: float
    std: float
    count: int


@dataclass(frozen=True)
class Summary:
    """One metric of one region: each site over its cases, all sites, all images.

    `over_sites` is the spread of the sites' means, whatever their sizes; `over_images` counts every
    case once.
    """

    sites: Mapping[str, Spread]
    over_sites: Spread
    over_images: Spread


@dataclass(frozen=True)
class SeedSummary:
    """The numbers of a `Summary` over seeds: mean and standard deviation from run to run."""

    sites: Mapping[str, Spread]
    over_sites: Spread
    over_images: Spread
    std_over_sites: Spread


def summarise(rows: Iterable[SiteScore]) -> dict[str, dict[str, Summary]]:
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


def across_seeds(summaries: Sequence[Summary]) -> SeedSummary:
    """The spread over seeds of each number in summaries of the same sites, one for each seed."""
    if not summaries:
        raise ValueError("there is no summary to take the spread of")
    names = list(summaries[0].sites)
    for summary in summaries[1:]:
        if set(summary.sites) != set(names):
            raise ValueError(
                f"seeds must have the same sites, got {sorted(names)} and {sorted(summary.sites)}"
            )
    return SeedSummary(
        sites={name: spread([each.sites[name].mean for each in summaries]) for name in names},
        over_sites=spread([each.over_sites.mean for each in summaries]),
        over_images=spread([each.over_images.mean for each in summaries]),
        std_over_sites=spread([each.over_sites.std for each in summaries]),
    )


def spread(values: Sequence[float]) -> Spread:
    """Mean and population standard deviation; at least one value."""
    if not len(values):
        raise ValueError("there are no values to take the mean of")
    return Spread(float(np.mean(values)), float(np.std(values)), len(values))


_Cases = dict[str, float]
_Sites = dict[str, _Cases]


def _by_region_and_site(rows: Iterable[SiteScore]) -> dict[str, dict[str, _Sites]]:
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
    return Summary(
        sites=spreads,
        over_sites=spread([each.mean for each in spreads.values()]),
        over_images=spread([value for values in sites.values() for value in values]),
    )
