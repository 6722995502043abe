"""Running a study: every method with every seed, each in a run folder of its own."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import product
from pathlib import Path

import torch

from polyclinic.config import MethodChoice, Study, Tables, to_toml
from polyclinic.data.cases import SiteData, with_masks
from polyclinic.data.load import load_federation
from polyclinic.data.tasks import TASKS, Task
from polyclinic.engine.checkpoint import Checkpoint
from polyclinic.engine.local import LocalSites, prepare
from polyclinic.engine.loop import Event, Loop
from polyclinic.engine.states import StateFolder
from polyclinic.engine.tensors import nested, save_tensors
from polyclinic.engine.workplace import Assignment, Workplace
from polyclinic.evaluation import METRICS
from polyclinic.federation.server import Server, SiteInfo
from polyclinic.methods import FINISHES, METHODS
from polyclinic.networks import NETWORKS
from polyclinic.networks.parts import parameters
from polyclinic.runs import (
    About,
    AboutSite,
    AboutTask,
    Finished,
    RoundLine,
    RunError,
    RunFolder,
    Score,
    run_path,
    slug,
)
from polyclinic.weak import KINDS

TABLES = Tables(
    task=TASKS, network=NETWORKS, method=METHODS, finish=FINISHES, kind=KINDS, metric=METRICS
)


@dataclass(frozen=True)
class Run:
    """One method with one seed, its folder, and the study narrowed down to it."""

    choice: MethodChoice
    seed: int
    folder: RunFolder
    study: Study


Watch = Callable[[Run, Event], None]


def task_of(study: Study) -> Task:
    """The task of a study at the study's resolution."""
    task: Task = TASKS[study.task.name]
    resolution = study.task.settings.get("resolution")
    return task.with_resolution(resolution) if resolution else task


def runs_of(study: Study, root: Path) -> list[Run]:
    """All runs of a study: every method with the first seed, then with the second, and so on."""
    return [
        Run(
            choice,
            seed,
            RunFolder(run_path(root, study.name, choice.label, seed)),
            study.model_copy(update={"method": (choice,), "seeds": (seed,)}),
        )
        for seed, choice in product(study.seeds, study.method)
    ]


def run_study(
    study: Study, root: Path, *, resume: bool = False, fresh: bool = False, watch: Watch
) -> list[Run]:
    """Do all runs of a study that are not finished, telling `watch` every event."""
    runs = runs_of(study, root)
    if not fresh:
        refuse_mistaken_runs(runs, resume=resume)
    data = {
        labels: load_data(study, labels, splits_folder=root / slug(study.name) / "splits")
        for labels in dict.fromkeys(choice.labels for choice in study.method)
    }
    for run in runs:
        with run.folder.lock():
            if fresh:
                run.folder.clear()
            if not run.folder.finished:
                for event in perform(run, data[run.choice.labels]):
                    watch(run, event)
    return runs


def load_data(study: Study, labels: str | None, *, splits_folder: Path | None) -> list[SiteData]:
    """The sites' cases; with `labels` every site trains on these instead of its own kind."""
    data = load_federation(
        task_of(study), study.data, study.site, labels=labels, splits_folder=splits_folder
    )
    refuse_missing_validation(study, data)
    return data


def refuse_mistaken_runs(runs: Sequence[Run], *, resume: bool) -> None:
    """Raise an error that names every folder which holds another run than the one to do."""
    mistakes = []
    for run in runs:
        if not run.folder.exists:
            continue
        if not resume:
            mistakes.append(f"{run.folder.path} already holds a run")
        elif run.folder.settings_text() != to_toml(run.study):
            mistakes.append(f"{run.folder.path} holds a run with other settings")
    if mistakes:
        advice = (
            "the study changed since: start afresh with --fresh, or give it another name"
            if resume
            else "continue with --resume, or start afresh with --fresh"
        )
        raise RunError("\n".join([*mistakes, advice]))


def refuse_missing_validation(study: Study, data: Sequence[SiteData]) -> None:
    """Raise an error where the best round is wanted but nothing could tell it."""
    if study.evaluation.choose == "best" and not any(len(with_masks(site.val)) for site in data):
        raise RunError(
            "evaluation.choose = 'best' needs validation cases with masks, and no site has any; "
            "give data.split a second share above 0, or choose = 'last'"
        )


def perform(run: Run, data: Sequence[SiteData]) -> Iterator[Event]:
    """One run from where it stands to its end, event by event."""
    engine = run.study.engine
    device = torch.device(_device(engine.device))
    threads = engine.threads or max(1, (os.cpu_count() or 1) // engine.workers)
    prepare(threads)
    assignment = assign(run, data)
    workplace = Workplace(assignment, device)
    with closing(
        LocalSites(
            workplace,
            data,
            run.folder,
            workers=engine.workers,
            threads=threads,
            pictures=run.study.evaluation.pictures,
        )
    ) as sites:
        server = Server(
            sites.trained, workplace.first_weights(), run.study.federation, assignment.seed
        )
        checkpoint = Checkpoint(run.folder.path / "checkpoint")
        if checkpoint.exists:
            run.folder.forget_after(checkpoint.load(server).round)
        elif run.folder.exists:
            run.folder.clear()
        if not run.folder.exists:
            run.folder.create(to_toml(run.study), about(run, data, workplace, device, threads))

        def record(lines: Sequence[RoundLine], scores: Sequence[Score]) -> None:
            run.folder.append_round(lines)
            run.folder.append_scores(scores)

        loop = Loop(assignment, server, sites, run.study.evaluation, checkpoint, record)
        yield from loop.run()
        _keep_weights(run, server, assignment)
        chosen, seconds = loop.chosen_round, loop.progress.seconds
        run.folder.finish(Finished(chosen_round=chosen, seconds=seconds))
        shutil.rmtree(checkpoint.folder)


def assign(run: Run, data: Sequence[SiteData]) -> Assignment:
    """What all machines of a run agree on."""
    study = run.study
    return Assignment(
        method=METHODS[run.choice.name](**run.choice.settings),
        then=tuple(FINISHES[piece.name](**piece.settings) for piece in run.choice.then),
        network=study.network.name,
        network_settings=dict(study.network.settings),
        task=task_of(study),
        sites=tuple(
            SiteInfo(site.name, index, site.kind, len(site.train))
            for index, site in enumerate(data)
        ),
        training=study.training,
        rounds=study.federation.rounds,
        private_statistics=study.federation.statistics == "private",
        seed=run.seed,
    )


def about(
    run: Run, data: Sequence[SiteData], workplace: Workplace, device: torch.device, threads: int
) -> About:
    """What the run folder says of the run."""
    task, net = workplace.assignment.task, workplace.net
    names = parameters(net)
    return About(
        method=run.choice.label,
        seed=run.seed,
        task=AboutTask(name=task.name, classes=task.classes, regions=dict(task.regions)),
        sites=tuple(
            AboutSite(
                name=site.name,
                kind=site.kind,
                train=len(site.train),
                val=len(site.val),
                test=len(site.test),
            )
            for site in data
        ),
        network=run.study.network.name,
        parameters=sum(workplace.weights[name].numel() for name in names),
        device=str(device),
        threads=threads,
        started=datetime.now(UTC).isoformat(timespec="milliseconds"),
        versions={
            "python": platform.python_version(),
            **{name: version(name) for name in ("polyclinic", "torch", "numpy", "numba")},
        },
    )


def _keep_weights(run: Run, server: Server, assignment: Assignment) -> None:
    """The final models: each site's whole network and memory, and what the server shares."""
    texts = {
        "method": run.choice.label,
        "network": assignment.network,
        "task": assignment.task.name,
    }
    last = assignment.rounds + 1
    states = StateFolder(run.folder.path / "checkpoint" / "sites")
    for info in assignment.sites:
        state = states.load(info.name, last)
        assert state is not None, "every site has settled"
        tensors = nested(weights=state.weights, memory=state.memory)
        save_tensors(run.folder.weights_path(info.name), tensors, texts)
    tensors = nested(weights=server.weights, memory=server.memory)
    save_tensors(run.folder.weights_path("server"), tensors, texts)


def _device(name: str) -> str:
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return name
