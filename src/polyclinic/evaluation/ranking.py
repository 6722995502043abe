"""Methods in the order of their scores, with what chance alone could have made of them.

Cases lie within patients, patients within sites. A case's score is its mean over regions and seeds,
a method's the mean over sites of the mean over cases. Patients are drawn anew or get another sign
as a whole; seeds are never counted as cases.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polyclinic.evaluation.intervals import SHARE, bootstrap_intervals
from polyclinic.evaluation.permuting import holm, sign_flips, site_chances

Values = Mapping[str, Mapping[str, float]]
"""Site → case → value."""
Patients = Mapping[str, Mapping[str, int]]
"""Site → case → number of the patient; 0, or no entry, is unknown."""
Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Ranked:
    """A method's score with its interval, and its distance from the best one.

    `chance` is how often sign flips alone give such a distance, corrected by Holm over all methods
    compared with the best; 1 for the best itself. `over_sites` is the same of a test over sites,
    None where there are too few. The interval is NaN where patients are too few for one.
    """

    title: str
    score: float
    low: float
    high: float
    behind: float
    chance: float
    over_sites: float | None

    @property
    def within_noise(self) -> bool:
        """Whether the distance from the best may be chance."""
        return within_noise(self.chance)


@dataclass(frozen=True)
class Sample:
    """The cases that all methods were scored on: whose they are, and the scores of each method."""

    sites: tuple[str, ...]  # of each case
    patients: NDArray[np.intp]  # of each case, numbered through all sites
    scores: Mapping[str, Numbers]  # of each method

    def weights(self, site: str | None = None, *, images: bool = False) -> Numbers:
        """What each case counts in the mean over sites, in a site's mean or over all images."""
        counts = Counter(self.sites)
        if images:
            return np.full(len(self.sites), 1 / len(self.sites))
        if site is not None:
            return np.array([(name == site) / counts[name] for name in self.sites])
        return np.array([1 / counts[name] / len(counts) for name in self.sites])

    def chances(self, best: str, weights: Numbers) -> dict[str, float]:
        """How often chance alone would part each other method from the best one as far."""
        others = [title for title in self.scores if title != best]
        counted = weights > 0
        apart = [(self.scores[best] - self.scores[title])[counted] for title in others]
        patients = np.unique(self.patients[counted], return_inverse=True)[1]
        found = holm(sign_flips([each * weights[counted] for each in apart], patients))
        return dict(zip(others, found, strict=True))


def ranking(
    methods: Mapping[str, Values], patients: Patients | None = None, *, higher: bool
) -> list[Ranked]:
    """The methods from best to worst, scored on the cases that all of them have."""
    sample = common_sample(methods, patients or {})
    if sample is None:
        return []
    weights = sample.weights()
    scores = {title: float(values @ weights) for title, values in sample.scores.items()}
    order = sorted(scores, key=lambda title: scores[title], reverse=higher)
    best = order[0]
    chances = {best: 1.0, **sample.chances(best, weights)}
    sites = np.array([sample.weights(site) for site in dict.fromkeys(sample.sites)])
    means = {title: sites @ values for title, values in sample.scores.items()}
    over_sites = site_chances(means, best)
    rows = [values.tolist() for values in sample.scores.values()]
    found = bootstrap_intervals(rows, sample.patients.tolist(), sample.sites)
    intervals = dict(zip(sample.scores, found, strict=True))
    return [
        Ranked(
            title,
            scores[title],
            *intervals[title],
            scores[best] - scores[title],
            chances[title],
            over_sites.get(title),
        )
        for title in order
    ]


def within_noise(chance: float) -> bool:
    """Whether a distance that chance alone gives so often may be chance."""
    return chance >= 1 - SHARE


def common_sample(methods: Mapping[str, Values], patients: Patients) -> Sample | None:
    """The cases that all methods have scores of; None where there are none."""
    first, *others = methods.values()
    cases = [
        (site, case)
        for site, found in first.items()
        for case in found
        if all(case in each.get(site, {}) for each in others)
    ]
    if not cases:
        return None
    # Who is unknown is taken for a patient of one case.
    known = [(site, patients.get(site, {}).get(case, 0) or case) for site, case in cases]
    numbers = {whose: number for number, whose in enumerate(dict.fromkeys(known))}
    return Sample(
        tuple(site for site, _ in cases),
        np.array([numbers[whose] for whose in known]),
        {
            title: np.array([values[site][case] for site, case in cases])
            for title, values in methods.items()
        },
    )
