"""How far features of foreground and background are apart, before and after training."""

import math

import numpy as np

from polyclinic.report.figures.embeddings import pixel_tables, separations
from polyclinic.report.reading import Comparison, MethodRuns
from polyclinic.report.sheets import Entry, Sheet

MEAN = "Avg"


def separation_sheet(comparison: Comparison) -> Sheet | None:
    """A row for each method whose runs keep embeddings: a column for each site and their mean."""
    found = [(method.title, _apart(method)) for method in comparison.methods]
    shown = (*comparison.shown_sites, MEAN)
    columns = [(moment, site) for moment in ("before", "after") for site in shown]
    rows = tuple(
        (Entry(title), *(_entry(apart.get(column, [])) for column in columns))
        for title, apart in found
        if apart
    )
    if not rows:
        return None
    return Sheet(
        name="separation",
        title="Separation of foreground and background",
        caption="Symmetric KL divergence of normal distributions fitted to what the head sees of "
        "foreground and background pixels of test cases, mean over channels, then over runs; "
        "larger is further apart.",
        heads=("Method", *(site for _, site in columns)),
        rows=rows,
        groups=tuple((f"{moment} training", len(shown)) for moment in ("before", "after")),
    )


def _apart(method: MethodRuns) -> dict[tuple[str, str], list[float]]:
    """A value for each finished run, by moment and site."""
    found: dict[tuple[str, str], list[float]] = {}
    for run in method.finished:
        for moment, sites in separations(pixel_tables(run)).items():
            known = {site: value for site, value in sites.items() if math.isfinite(value)}
            if known:
                known[MEAN] = float(np.mean(list(known.values())))
            for site, value in known.items():
                found.setdefault((moment, site), []).append(value)
    return found


def _entry(values: list[float]) -> Entry:
    if not values:
        return Entry("–")
    return Entry(f"{np.mean(values):.2f}", float(np.mean(values)))
