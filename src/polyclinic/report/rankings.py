"""The methods from best to worst as tables: intervals, and what chance could have made of it."""

import math
from collections.abc import Iterator, Mapping, Sequence

from polyclinic.evaluation.intervals import NONE_FOR_FEW
from polyclinic.evaluation.permuting import FEWEST_SITES
from polyclinic.evaluation.ranking import Ranked
from polyclinic.evaluation.statistics import OVERALL
from polyclinic.report.chance import ranked
from polyclinic.report.measures import Measure
from polyclinic.report.reading import Comparison
from polyclinic.report.sheets import Entry, Sheet

HEADS = ("Mean over sites", "95 % from", "95 % to", "Behind the best", "p (patients)")


def rankings(comparison: Comparison, what: str = "method") -> list[Sheet]:
    """For each metric a table over all regions and, where there are several, one by region.

    There is none of a metric by which nothing can be ranked.
    """
    sheets = []
    for metric in comparison.metrics:
        if found := ranked(comparison, metric):
            sheets.append(_sheet(comparison, metric, {OVERALL: found}, what))
            regions = comparison.regions_of(metric)
            if len(regions) > 1:
                each = {region: ranked(comparison, metric, region) for region in regions}
                sheets.append(_sheet(comparison, metric, each, what))
    return sheets


def _sheet(
    comparison: Comparison, metric: str, found: Mapping[str, Sequence[Ranked]], what: str
) -> Sheet:
    how, sites = comparison.measure(metric), len(comparison.sites)
    by_region = OVERALL not in found
    few = any(math.isnan(each.low) for order in found.values() for each in order)
    return Sheet(
        name=f"ranking-{metric}" + ("-by-region" if by_region else ""),
        title=f"Ranking by {how.title_with_unit} {how.arrow}" + (", by region" * by_region),
        caption=" ".join(_caption(what, sites, by_region=by_region, few=few)),
        heads=(
            what.capitalize(),
            *(["Region"] if by_region else []),
            *HEADS,
            *(["p (sites)"] if sites >= FEWEST_SITES else []),
        ),
        rows=tuple(
            (Entry(each.title), *([Entry(region)] if by_region else []), *numbers)
            for region, order in found.items()
            for each, numbers in ((each, _numbers(each, order[0], how, sites)) for each in order)
        ),
        words=2 if by_region else 1,
    )


def _numbers(each: Ranked, best: Ranked, how: Measure, sites: int) -> Iterator[Entry]:
    first = each is best
    yield Entry(how.text(each.score), each.score, mark="best" if first else "")
    for end in (each.low, each.high):
        yield Entry(how.text(end), end)
    behind = abs(each.behind)
    yield (Entry("best", 0.0) if first else Entry(how.text(behind), behind, near=each.within_noise))
    yield _chance(None if first else each.chance)
    if sites >= FEWEST_SITES:
        yield _chance(each.over_sites)


def _chance(value: float | None) -> Entry:
    return Entry("–") if value is None else Entry(f"{value:.4f}", value)


def _caption(what: str, sites: int, *, by_region: bool, few: bool) -> Iterator[str]:
    over = "runs" if by_region else "regions and runs"
    yield (
        f"A case's score is its mean over {over}, a {what}'s the mean over sites of the mean over "
        f"the cases that all {what}s have. 95 %: an interval by bootstrap of patients within sites."
    )
    if few:
        yield NONE_FOR_FEW
    yield (
        "p (patients): sign flips of each patient's paired differences from the best "
        f"{what}, two-sided, corrected by Holm{' within each region' if by_region else ''}; ≈ "
        "within noise is p of 0.05 and more."
    )
    if sites >= FEWEST_SITES:
        yield (
            "p (sites): signed ranks of the sites' means, corrected alike; with "
            f"{sites} sites it cannot be below {2 / 2**sites:.4f} before correction."
        )
