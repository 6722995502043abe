"""One run of a study: a method with a seed, its folder, and what all its machines agree on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import torch

from polyclinic.config import MethodChoice, Study
from polyclinic.data.cases import SiteData
from polyclinic.data.tasks import Task
from polyclinic.engine.site_runner import Assignment
from polyclinic.masks import group_names
from polyclinic.runs import RunFolder, SiteInfo, run_path


@dataclass(frozen=True)
class Run:
    """One method with one seed, its folder, and the study narrowed down to it."""

    choice: MethodChoice
    seed: int
    folder: RunFolder
    study: Study


def runs_of(study: Study, root: Path) -> list[Run]:
    """All runs of a study: every method with the first seed, then with the second, and so on."""
    return [
        Run(
            choice,
            seed,
            RunFolder(run_path(root, study.name, choice.title, seed)),
            study.model_copy(update={"method": (choice,), "seeds": (seed,)}),
        )
        for seed, choice in product(study.seeds, study.method)
    ]


def assignment_of(run: Run, sites: Sequence[SiteInfo]) -> Assignment:
    """What all machines of a run agree on."""
    study = run.study
    return Assignment(
        method=run.choice.built,
        then=tuple(piece.built for piece in run.choice.then),
        network=study.network,
        task=study.task.built,
        sites=tuple(sites),
        training=study.training,
        loss=study.loss.built if study.loss else None,
        metrics={metric.name: metric.built for metric in study.metric},
        rounds=study.federation.rounds,
        statistics=study.federation.statistics,
        seed=run.seed,
    )


def site_info(data: SiteData, task: Task, index: int = 0) -> SiteInfo:
    """What others may know of a site."""
    train, val, test = (len(split) for split in (data.train, data.val, data.test))
    partly = data.mask_groups or (data.groups[0] if len(data.groups) == 1 else ())
    names = group_names(task.classes, partly).values() if partly else ()
    return SiteInfo(data.name, index, data.kind, train, val, test, " · ".join(names))


def device_of(name: str) -> torch.device:
    """The device that a setting means on this machine."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)
