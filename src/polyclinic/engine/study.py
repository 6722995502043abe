"""Running a study: every method with every seed, each in a run folder of its own."""

from __future__ import annotations

import os
import platform
import shutil
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import product
from pathlib import Path

import torch

from polyclinic.config import MethodChoice, Study, Tables, changes, to_toml
from polyclinic.data.cases import SiteData, with_masks
from polyclinic.data.load import load_federation
from polyclinic.data.tasks import TASKS, Task
from polyclinic.engine.checkpoint import Checkpoint
from polyclinic.engine.local import LocalSites, prepare
from polyclinic.engine.loop import Event, Loop, Sites
from polyclinic.engine.models import keep_model
from polyclinic.engine.site_runner import Assignment, SiteRunner
from polyclinic.engine.starting import first_server, refuse_unsuitable_rule
from polyclinic.engine.states import SiteState
from polyclinic.evaluation import METRICS
from polyclinic.federation.server import SiteInfo
from polyclinic.methods import FINISHING_STEPS, METHODS
from polyclinic.networks import NETWORKS
from polyclinic.networks.parts import parameters
from polyclinic.runs import (
    About,
    AboutSite,
    AboutTask,
    Finished,
    RoundLine,
    RoundTable,
    RunError,
    RunFolder,
    Score,
    run_path,
    slug,
)
from polyclinic.weak import KINDS

TABLES = Tables(
    task=TASKS, network=NETWORKS, method=METHODS, finish=FINISHING_STEPS, kind=KINDS, metric=METRICS
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
    refuse_unsuitable_rule(study)
    return [
        Run(
            choice,
            seed,
            RunFolder(run_path(root, study.name, choice.title, seed)),
            study.model_copy(update={"method": (choice,), "seeds": (seed,)}),
        )
        for seed, choice in product(study.seeds, study.method)
    ]


def run_study(
    study: Study, root: Path, *, resume: bool = False, fresh: bool = False, watch: Watch
) -> list[Run]:
    """Do all runs of a study that are not finished, telling `watch` every event."""
    if study.engine.name != "local":
        raise RunError("the engine of this study is flower: polyclinic server runs it")
    runs = runs_of(study, root)
    if not fresh:
        refuse_mistaken_runs(runs, resume=resume)
    data = {
        labels: load_data(study, labels, splits_folder=root / slug(study.name) / "splits")
        for labels in dict.fromkeys(choice.labels for choice in study.method)
    }
    do_runs(runs, lambda run: perform(run, data[run.choice.labels]), fresh=fresh, watch=watch)
    return runs


def do_runs(
    runs: Sequence[Run],
    performing: Callable[[Run], Iterator[Event]],
    *,
    fresh: bool,
    watch: Watch,
) -> None:
    """Do the runs that are not finished, one after another."""
    for run in runs:
        with run.folder.lock():
            if fresh:
                run.folder.clear()
            if not run.folder.finished:
                for event in performing(run):
                    watch(run, event)


def load_data(study: Study, labels: str | None, *, splits_folder: Path | None) -> list[SiteData]:
    """The sites' cases; with `labels` every site trains on these instead of its own kind."""
    data = load_federation(
        task_of(study), study.data, study.site, labels=labels, splits_folder=splits_folder
    )
    refuse_no_validation(study, sum(len(with_masks(site.val)) for site in data))
    return data


def refuse_mistaken_runs(runs: Sequence[Run], *, resume: bool) -> None:
    """Raise an error that names every folder which holds another run than the one to do."""
    mistakes = []
    for run in runs:
        if not run.folder.exists:
            continue
        if not resume:
            mistakes.append(f"{run.folder.path} already holds a run")
        elif changed := changes(run.folder.settings(), tomllib.loads(to_toml(run.study))):
            mistakes.append(f"{run.folder.path} holds a run with other settings:")
            mistakes += [f"  {change}" for change in changed]
    if mistakes:
        advice = (
            "the study changed since: start afresh with --fresh, or give it another name"
            if resume
            else "continue with --resume, or start afresh with --fresh"
        )
        raise RunError("\n".join([*mistakes, advice]))


def refuse_no_validation(study: Study, cases: int) -> None:
    """Raise an error where the best round is wanted but no cases could tell it."""
    if study.evaluation.choose == "best" and not cases:
        raise RunError(
            "evaluation.choose = 'best' needs validation cases with masks, and no site has any; "
            "give data.split a second share above 0, or choose = 'last'"
        )


def perform(run: Run, data: Sequence[SiteData]) -> Iterator[Event]:
    """One run from where it stands to its end, event by event."""
    engine = run.study.engine
    device = torch.device(device_of(engine.device))
    threads = engine.threads or max(1, (os.cpu_count() or 1) // engine.workers)
    prepare(threads)
    assignment = assign(run, data)
    runner = SiteRunner(assignment, device)
    with closing(
        LocalSites(
            runner,
            data,
            run.folder,
            workers=engine.workers,
            threads=threads,
            pictures=run.study.evaluation.pictures,
        )
    ) as sites:
        about_run = about(run, [about_site(site) for site in data], runner, threads)
        yield from conduct(run, runner, sites, about_run)


def conduct(run: Run, runner: SiteRunner, sites: Sites, about_run: About) -> Iterator[Event]:
    """The same with its sites wherever they are: the loop, and the folder that it fills."""
    assignment = runner.assignment
    server = first_server(run.study, runner, sites)
    checkpoint = Checkpoint(run.folder.path / "checkpoint")
    if checkpoint.exists:
        run.folder.forget_after(checkpoint.load(server).round)
    elif run.folder.exists:
        run.folder.clear()
    if not run.folder.exists:
        run.folder.create(to_toml(run.study), about_run)

    def record(
        lines: Sequence[RoundLine], scores: Sequence[Score], tables: Sequence[RoundTable]
    ) -> None:
        run.folder.append_round(lines)
        run.folder.append_scores(scores)
        run.folder.append_tables(tables)

    loop = Loop(assignment, server, sites, run.study.evaluation, checkpoint, record)
    yield from loop.run()
    sites.keep(assignment.rounds + 1)
    final = SiteState(server.weights, server.memory)
    keep_model(run.folder, "server", run.choice.title, final, assignment)
    chosen, seconds = loop.chosen_round, loop.progress.seconds
    run.folder.finish(Finished(chosen_round=chosen, seconds=seconds))
    shutil.rmtree(checkpoint.folder)


def assign(run: Run, data: Sequence[SiteData]) -> Assignment:
    """What all machines of a run agree on, where all sites are here."""
    return assignment_of(run, [about_site(site) for site in data])


def assignment_of(run: Run, sites: Sequence[AboutSite]) -> Assignment:
    """What all machines of a run agree on."""
    study = run.study
    return Assignment(
        method=METHODS[run.choice.name](**run.choice.settings),
        then=tuple(FINISHING_STEPS[piece.name](**piece.settings) for piece in run.choice.then),
        network=study.network.name,
        network_settings=dict(study.network.settings),
        pretrained=study.network.pretrained,
        task=task_of(study),
        sites=tuple(
            SiteInfo(site.name, index, site.kind, site.train) for index, site in enumerate(sites)
        ),
        training=study.training,
        rounds=study.federation.rounds,
        private_statistics=study.federation.statistics == "private",
        seed=run.seed,
    )


def about_site(site: SiteData) -> AboutSite:
    """What the run folder says of a site."""
    counts = {split: len(getattr(site, split)) for split in ("train", "val", "test")}
    return AboutSite(name=site.name, kind=site.kind, **counts)


def about(run: Run, sites: Sequence[AboutSite], runner: SiteRunner, threads: int) -> About:
    """What the run folder says of the run."""
    task, net = runner.assignment.task, runner.net
    names = parameters(net)
    return About(
        method=run.choice.title,
        seed=run.seed,
        task=AboutTask(name=task.name, classes=task.classes, regions=dict(task.regions)),
        sites=tuple(sites),
        network=run.study.network.name,
        pretrained=runner.pretrained,
        parameters=sum(runner.weights[name].numel() for name in names),
        device=str(runner.device),
        threads=threads,
        started=datetime.now(UTC).isoformat(timespec="milliseconds"),
        versions={
            "python": platform.python_version(),
            **{name: version(name) for name in ("polyclinic", "torch", "numpy", "numba")},
        },
    )


def device_of(name: str) -> str:
    """The device that a setting means on this machine."""
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return name
