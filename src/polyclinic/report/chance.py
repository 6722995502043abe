"""What chance alone could have made of the differences between methods, and what cannot be said."""

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np

from polyclinic.evaluation.permuting import FEWEST_SITES
from polyclinic.evaluation.ranking import (
    Ranked,
    Sample,
    common_sample,
    ranking,
    within_noise,
)
from polyclinic.evaluation.statistics import OVERALL
from polyclinic.report.conditions import ceilings_of, scored_rows
from polyclinic.report.patients import all_known, patients_of
from polyclinic.report.reading import Comparison, MethodRuns
from polyclinic.report.words import enumeration

IMAGES: Final = "/images"  # the mean over all images
UNTESTED: Final = "/"  # no mean; neither can be the name of a site
Part = str | None  # a site, IMAGES, or None for the mean over sites


def ranked(comparison: Comparison, metric: str, region: str = OVERALL) -> list[Ranked]:
    """The methods but ceilings from best to worst by a metric that has a better side.

    None where a site gave nothing but its means.
    """
    better = comparison.measure(metric).better
    methods = _compared(comparison)
    if better is None or len(methods) < 2 or means_only(comparison):
        return []
    values = {each.title: _by_case(each, metric, region, comparison) for each in methods}
    return ranking(values, patients_of(comparison), higher=better == "higher")


def near_best(
    comparison: Comparison, metric: str, wanted: Iterable[tuple[str, Part]]
) -> list[set[str]]:
    """For each region and part, the methods whose distance from the best may be chance.

    A part is a site, all images or the mean over sites. The best itself is left out.
    """
    better = comparison.measure(metric).better
    pairs = list(wanted)
    samples = {region: _sample(comparison, metric, region) for region, _ in pairs}
    return [
        _near(sample, part, 1 if better == "higher" else -1)
        if better and (sample := samples[region])
        else set()
        for region, part in pairs
    ]


def means_only(comparison: Comparison) -> list[str]:
    """The sites whose hospitals let nothing out but the means over their cases."""
    sites = {
        site: None
        for run in comparison.runs
        for site, cases in run.patients.items()
        if list(cases) == ["test mean"] and not any(cases.values())
    }
    return list(sites)


def _near(sample: Sample, part: Part, sign: int) -> set[str]:
    if part not in (None, IMAGES, *sample.sites):
        return set()
    weights = sample.weights(part if part != IMAGES else None, images=part == IMAGES)
    best = max(sample.scores, key=lambda title: sign * float(sample.scores[title] @ weights))
    chances = sample.chances(best, weights)
    return {title for title, chance in chances.items() if within_noise(chance)}


def cautions(comparison: Comparison) -> Iterator[str]:
    """What the statistics of these runs cannot say, and why."""
    if means := means_only(comparison):
        yield (
            f"{enumeration(means)} gave means only, not the scores of cases: there are no "
            "intervals and no tests."
        )
    elif not all_known(comparison):
        yield (
            "Some runs do not tell which cases are of one patient: each case counts as a patient, "
            "so that intervals and p are too small where a patient has several."
        )
    count = len(comparison.sites)
    if count < FEWEST_SITES:
        yield (
            f"There is no test over sites: {count} are too few. With five the smallest two-sided p "
            "of signed ranks is 0.0625, so that no result could ever count; nothing here says how "
            "methods do at other hospitals."
        )
    if any(len({run.about.seed for run in method.finished}) == 1 for method in comparison.methods):
        yield "With one seed nobody knows how far another would lie; intervals do not tell."


def _sample(comparison: Comparison, metric: str, region: str) -> Sample | None:
    methods = _compared(comparison)
    if len(methods) < 2 or means_only(comparison):
        return None
    values = {each.title: _by_case(each, metric, region, comparison) for each in methods}
    return common_sample(values, patients_of(comparison))


def _compared(comparison: Comparison) -> list[MethodRuns]:
    """The finished rows but ceilings."""
    shown = scored_rows(comparison)
    ceilings = ceilings_of(comparison, shown)
    return [row for row in shown if row.finished and row.title not in ceilings]


def _by_case(
    method: MethodRuns, metric: str, region: str, comparison: Comparison
) -> dict[str, dict[str, float]]:
    """Site → case → mean over regions and runs."""
    regions = comparison.regions_of(metric) if region == OVERALL else (region,)
    found: dict[str, dict[str, list[float]]] = {}
    for run in method.finished:
        for site in comparison.sites:
            for name in regions:
                for case, value in run.tested.get((metric, name, site), {}).items():
                    found.setdefault(site, {}).setdefault(case, []).append(value)
    return {
        site: {case: float(np.mean(values)) for case, values in cases.items()}
        for site, cases in found.items()
    }
