"""Running a study: every method with every seed and fold, each in a run folder of its own."""

import platform
import tomllib
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Protocol

import torch

from polyclinic.config import FederationSettings, Study, changes, to_toml, weighting_of
from polyclinic.engine.checkpoint import Checkpoint
from polyclinic.engine.loop import Event, Loop, Notice
from polyclinic.engine.renaming import find_renamed
from polyclinic.engine.run import Assignment, Run, federation_of, runs_of
from polyclinic.engine.site_runner import SiteRunner
from polyclinic.engine.sites import Sites
from polyclinic.engine.states import keep_model, lost_end
from polyclinic.federation.combining import refuse_too_few
from polyclinic.federation.server import Server
from polyclinic.networks.parts import EmptySelection, PartError, parameters
from polyclinic.networks.pretrained import fingerprint
from polyclinic.runs import About, AboutMetric, AboutTask, Finished, RunError, RunFolder, SiteInfo

Watch = Callable[[Run, Event], None]
_version = cache(version)  # one takes as long to find out as a tiny round


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
    runs = checked_runs(study, root, resume=resume, fresh=fresh)
    engine.prepare([run for run in runs if fresh or not run.folder.finished])
    for run in runs:
        for event in do_run(run, engine, fresh=fresh):
            watch(run, event)
        Checkpoint(run.folder.path / "checkpoint").remove()
    return runs


def checked_runs(study: Study, root: Path, *, resume: bool, fresh: bool) -> list[Run]:
    """All runs of a study, once it is clear that none of their folders holds another one."""
    for each in study.swept or (study,):
        refuse_unsuitable_rule(each)
    runs = runs_of(study, root)
    if resume:
        find_renamed(runs)
    if not fresh:
        refuse_mistaken_runs(runs, resume=resume)
    return runs


def do_run(run: Run, engine: Engine, *, fresh: bool) -> Generator[Event, None, None]:
    """One run from where it stands, or from its beginning (`fresh`), event by event."""
    with run.folder.lock():
        if fresh:
            run.folder.clear()
        if not run.folder.finished:
            with engine.open(run) as sites:
                yield from carry_out(run, sites)


def carry_out(run: Run, sites: Sites) -> Iterator[Event]:
    """One run from where it stands to its end: the round loop, and the folder that it fills.

    The checkpoint is left there, because another run may go on from it.
    """
    assignment = sites.runner.assignment
    server = first_server(federation_of(run), sites)
    checkpoint = Checkpoint(run.folder.path / "checkpoint")
    described = about(run, sites.runner, sites.threads)
    if (yield from recover(run.folder, checkpoint, server, described)):
        return
    if not run.folder.exists:
        run.folder.create(to_toml(run.study), described)
    loop = Loop(assignment, server, sites, run.study.evaluation, checkpoint, run.folder.append)
    yield from loop.run()
    yield from sites.keep(assignment.rounds + 1, server)
    end = Finished(
        chosen_round=loop.chosen_round,
        seconds=loop.progress.seconds,
        predicting=loop.predicting,
    )
    keep_model(run.folder, "server", run.choice.title, server, assignment, end)
    run.folder.finish(end)


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
            else "continue with --resume (resume=True), or start afresh with --fresh (fresh=True)"
        )
        raise RunError("\n".join([*mistakes, advice]))


def about(run: Run, runner: SiteRunner, threads: int, own: SiteInfo | None = None) -> About:
    """What the run folder says of the run; with `own` it is this site's, with its scores only."""
    task, sites = runner.assignment.task, runner.assignment.sites
    told = ("title", "summary", "better")
    scored = (own,) if own else sites
    return About(
        method=run.choice.title,
        seed=run.seed,
        fold=run.fold,
        left_out=run.left_out,
        swept=dict(run.choice.swept),
        task=AboutTask(name=task.name, classes=task.classes, regions=dict(task.regions)),
        sites=tuple(own if own and site.name == own.name else site for site in sites),
        metrics={
            each.name: AboutMetric(
                **{key: getattr(each.built, key) for key in told},
                unit=each.built.unit_at(site.measured for site in scored),
            )
            for each in run.study.metric
        },
        weighting=weighting_of(run.choice.built, run.choice.weighting, run.study.federation),
        network=run.study.network.name,
        pretrained=runner.pretrained,
        start=fingerprint(file) if (file := run.study.network.pretrained) else "",
        parameters=sum(runner.weights[name].numel() for name in parameters(runner.net)),
        device=str(runner.device),
        threads=threads,
        started=datetime.now(UTC).isoformat(timespec="milliseconds"),
        versions={
            "python": platform.python_version(),
            **{name: _version(name) for name in ("polyclinic", "torch", "numpy", "numba")},
            **run.study.packages,
        },
    )


def recover(
    folder: RunFolder, checkpoint: Checkpoint, server: Server, about: About
) -> Generator[Event, None, bool]:
    """Make a folder ready to go on from its checkpoint; True where the run was finished.

    Only what holds no finished round is cleared; otherwise an error says what to do.
    """
    if checkpoint.exists:
        folder.forget_after(checkpoint.load(server).round)
        try:
            folder.about()
        except RunError as error:
            folder.write_about(about)
            yield Notice(f"{error}; it is written again")
    elif folder.exists:
        end = lost_end(folder)
        if end is not None:
            folder.finish(end)
            yield Notice(f"{folder.path / 'finished.json'} was lost; it is written again")
            return True
        folder.clear()
    return False


def refuse_no_validation(study: Study, cases: int, unscored: int) -> None:
    """Raise an error where the best round is wanted but no cases could tell it."""
    if study.evaluation.choose == "best" and not cases:
        advice = "give data.split a second share above 0"
        if unscored:
            advice = (
                f"the split is fine, but its {unscored} validation cases have no mask of a scored "
                "region: add masks for some of them"
            )
        raise RunError(
            "evaluation.choose = 'best' needs validation cases with masks, and no site has any; "
            f"{advice}, or choose = 'last'"
        )


def refuse_unsuitable(assignments: Mapping[str, Assignment]) -> None:
    """Raise an error that names every method which cannot work with the network, and why."""
    mistakes = []
    for title, assignment in assignments.items():
        untaught = assignment.training.model_copy(update={"pretrain": "none"})
        try:
            SiteRunner(replace(assignment, training=untaught), torch.device("cpu"))
        except (EmptySelection, PartError) as error:
            mistakes.append(f"{title}: {error}")
    if mistakes:
        raise RunError("\n".join(mistakes))


def refuse_unsuitable_rule(study: Study) -> None:
    """Raise an error that names every method whose replies the study's rule cannot combine."""
    rule = study.federation.combine
    reasons = {choice.title: choice.built.needs_mean() for choice in study.method}
    if rule != "mean" and any(reasons.values()):
        told = "\n".join(f"  {title}: {reason}" for title, reason in reasons.items() if reason)
        advice = 'take them out of the study, or let it have federation.combine = "mean"'
        raise RunError(f'federation.combine = "{rule}" does not go with\n{told}\n{advice}')


def first_server(federation: FederationSettings, sites: Sites) -> Server:
    """The server before the first round; an error where there are too few sites for the rule."""
    runner = sites.runner
    if runner.assignment.method.pools:  # one reply, and nobody to compare it with
        federation = federation.model_copy(update={"combine": "mean"})
    refuse_too_few(federation, max(1, round(federation.participation * len(sites.trained))))
    stage, *_ = runner.assignment.stages_in(1)
    buffers = runner.shared_in(stage) - parameters(runner.net)
    first = runner.first_weights(stage)
    seed, training = runner.assignment.seed, runner.assignment.training
    return Server(sites.trained, first, federation, seed, buffers=buffers, training=training)
