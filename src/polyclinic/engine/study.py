"""Running a study: every method with every seed, each in a run folder of its own."""

from __future__ import annotations

import platform
import shutil
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Protocol

from polyclinic.config import Study, changes, to_toml
from polyclinic.engine.checkpoint import Checkpoint
from polyclinic.engine.loop import Event, Loop
from polyclinic.engine.models import keep_model
from polyclinic.engine.recovery import recover
from polyclinic.engine.run import Run, runs_of
from polyclinic.engine.sites import Sites
from polyclinic.engine.starting import first_server, refuse_unsuitable_rule
from polyclinic.evaluation import Metric
from polyclinic.networks.parts import parameters
from polyclinic.runs import About, AboutMetric, AboutTask, Finished, RunError

Watch = Callable[[Run, Event], None]


class Engine(Protocol):
    """Where the sites of a study are: on this machine, or at hospitals."""

    def prepare(self, runs: Sequence[Run]) -> None:
        """Reach every site, and refuse what cannot work before anything is trained."""
        ...

    def open(self, run: Run) -> AbstractContextManager[Sites]:
        """The sites of one run, for as long as it takes."""
        ...


def run_study(
    study: Study,
    root: Path,
    engine: Engine,
    *,
    resume: bool = False,
    fresh: bool = False,
    watch: Watch,
) -> list[Run]:
    """Do all runs of a study that are not finished, telling `watch` every event."""
    refuse_unsuitable_rule(study)
    runs = runs_of(study, root)
    if not fresh:
        refuse_mistaken_runs(runs, resume=resume)
    engine.prepare([run for run in runs if fresh or not run.folder.finished])
    for run in runs:
        with run.folder.lock():
            if fresh:
                run.folder.clear()
            if not run.folder.finished:
                with engine.open(run) as sites:
                    for event in carry_out(run, sites):
                        watch(run, event)
    return runs


def carry_out(run: Run, sites: Sites) -> Iterator[Event]:
    """One run from where it stands to its end: the round loop, and the folder that it fills."""
    assignment = sites.runner.assignment
    server = first_server(run.study.federation, sites)
    checkpoint = Checkpoint(run.folder.path / "checkpoint")
    described = about(run, sites)
    if (yield from recover(run.folder, checkpoint, server, described)):
        return
    if not run.folder.exists:
        run.folder.create(to_toml(run.study), described)
    loop = Loop(assignment, server, sites, run.study.evaluation, checkpoint, run.folder.append)
    yield from loop.run()
    sites.keep(assignment.rounds + 1)
    end = Finished(chosen_round=loop.chosen_round, seconds=loop.progress.seconds)
    keep_model(run.folder, "server", run.choice.title, server, assignment, end)
    run.folder.finish(end)
    shutil.rmtree(checkpoint.folder)


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


def about(run: Run, sites: Sites) -> About:
    """What the run folder says of the run."""
    runner, task = sites.runner, sites.runner.assignment.task
    return About(
        method=run.choice.title,
        seed=run.seed,
        task=AboutTask(name=task.name, classes=task.classes, regions=dict(task.regions)),
        sites=runner.assignment.sites,
        metrics={each.name: about_metric(each.built) for each in run.study.metric},
        network=run.study.network.name,
        pretrained=runner.pretrained,
        parameters=sum(runner.weights[name].numel() for name in parameters(runner.net)),
        device=str(runner.device),
        threads=sites.threads,
        started=datetime.now(UTC).isoformat(timespec="milliseconds"),
        versions={
            "python": platform.python_version(),
            **{name: version(name) for name in ("polyclinic", "torch", "numpy", "numba")},
            **run.study.packages,
        },
    )


def about_metric(metric: Metric) -> AboutMetric:
    """What the run folder says of a metric."""
    return AboutMetric(**{key: getattr(metric, key) for key in AboutMetric.model_fields})
