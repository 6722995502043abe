"""The sites of a trial: a few tiny images each, with labels of several kinds."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from polyclinic.config import DataSettings, SiteSettings
from polyclinic.data import synthetic
from polyclinic.data.cases import SiteData
from polyclinic.data.load import load_federation
from polyclinic.data.tasks import TASKS, Task

TASK = "octa"
CASES = (1, 4, 3, 2, 3)  # each site trains on, at most
KINDS = ("mask", "scribble", "block", "point", "mask")  # of their labels


def small_task(side: int) -> Task:
    """The trial's task at this size of images."""
    return TASKS[TASK].with_resolution(side)


@cache
def small_sites(side: int) -> tuple[SiteData, ...]:
    """Five unequal sites with labels of several kinds, the first with a single case."""
    drawn = zip(synthetic.federation(TASK), KINDS, strict=True)
    chosen = [SiteSettings(name=site.name, labels=kind) for site, kind in drawn]
    sites = load_federation(small_task(side), DataSettings(size=0.2), chosen)
    return tuple(
        replace(
            site,
            train=site.train.select(range(len(site.train))[:count]),
            test=site.test.select([0]),
        )
        for site, count in zip(sites, CASES, strict=True)
    )
