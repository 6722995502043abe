"""Two fundus sites with complementary annotation, disc only and cup only, and what models know."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from statistics import fmean

import torch

from polyclinic.catalog import BUILT_IN
from polyclinic.config import DataSettings, SiteSettings, Study, load_study
from polyclinic.data.cases import SiteData
from polyclinic.data.load import load_federation
from polyclinic.data.tasks import TASKS
from polyclinic.engine.run import Run, runs_of
from polyclinic.engine.unseen import try_models
from tests.federations import perform

SITES = {"amber": "disc", "birch": "cup"}


def sites(resolution: int, size: float, *, partial: bool, kind: str = "mask") -> list[SiteData]:
    """The two sites, with all classes or each with its own region only."""
    task = TASKS["fundus"].with_resolution(resolution)
    chosen = [
        SiteSettings(name=name, labels=kind, annotates=(region,) if partial else ())
        for name, region in SITES.items()
    ]
    return load_federation(task, DataSettings(size=size), chosen)


def taken_for_full(data: SiteData) -> SiteData:
    """The same labels, believed to say of every pixel which class it has."""
    return replace(data, groups=(), mask_groups=())


def study(file: Path, method: str, *overrides: str, resolution: int, extra: str = "") -> Study:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f'task = "fundus"\nmethod = "{method}"\n{extra}')
    size = (f"task.resolution={resolution}", "engine.threads=1", "evaluation.pictures=false")
    return load_study(file, [*size, *overrides], BUILT_IN)


def run(chosen: Study, data: list[SiteData], root: Path) -> Run:
    (only,) = runs_of(chosen, root)
    for _ in perform(only, data):
        pass
    return only


def dice(done: Run, full: list[SiteData]) -> dict[str, float]:
    """Region → mean Dice of the first site's model over the fully annotated test cases of all."""
    rows = [
        row
        for data in full
        for row in try_models(done, data, torch.device("cpu"), iterations=0)
        if row.metric == "dice" and row.model == full[0].name
    ]
    regions = dict.fromkeys(row.region for row in rows)
    return {each: fmean(row.value for row in rows if row.region == each) for each in regions}
