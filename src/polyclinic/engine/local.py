"""The local engine: all sites on this machine, in this process or in a few workers."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.multiprocessing

from polyclinic.config import EvaluationSettings, Study
from polyclinic.data.cases import SiteData, pool
from polyclinic.data.load import load_federation
from polyclinic.data.sources import listed_sites
from polyclinic.engine.cross_site import write_cross_site
from polyclinic.engine.devices import device_of, threads_of
from polyclinic.engine.parents import end_with_parent
from polyclinic.engine.pictures import draw_pictures, look_inside
from polyclinic.engine.process import prepare_process
from polyclinic.engine.run import Assignment, Run, assignment_of, site_info
from polyclinic.engine.site_runner import Scoring, SiteRunner
from polyclinic.engine.sites import Reply, Scored
from polyclinic.engine.states import SiteState, StateFolder, keep_model
from polyclinic.engine.study import refuse_no_validation, refuse_unsuitable
from polyclinic.engine.tensors import DamagedFile
from polyclinic.engine.unseen import score_unseen
from polyclinic.federation.message import Message
from polyclinic.federation.method import Stage
from polyclinic.federation.scoring import seconds_an_image
from polyclinic.federation.server import Server
from polyclinic.runs import RoundLine, RunError, RunFolder, SiteInfo

POOLED = "pooled"
KEPT = 4  # folds or kinds of labels whose cases stay in memory
SCORES_ONLY = EvaluationSettings(pictures=False)


class LocalEngine:
    """Runs a study with all its sites on this machine, which does so many runs at once."""

    def __init__(self, splits_folder: Path | None, jobs: int = 1) -> None:
        self.splits_folder = splits_folder
        self.jobs = jobs
        self.data: dict[str, list[SiteData]] = {}  # the latest few, by all that they depend on

    def prepare(self, runs: Sequence[Run]) -> None:
        """Read the cases of all sites, and tell every method that cannot work with them."""
        for run in runs:
            if run.study.engine.name != "local":
                raise RunError("the engine of this study is flower: polyclinic server runs it")
            device_of(run.study.engine.device)
        refuse_unsuitable({run.choice.title: assign(run, self._data(run)) for run in runs})

    def open(self, run: Run) -> "closing[LocalSites]":
        """The sites of one run."""
        return local_sites(run, self._data(run), jobs=self.jobs)

    def _data(self, run: Run) -> list[SiteData]:
        study, labels = run.study, run.choice.labels
        everywhere = study.data.model_copy(update={"leave_out": None})
        key = repr((study.task.built, everywhere, study.site, labels))
        if key not in self.data:
            if len(self.data) == KEPT:
                self.data.pop(next(iter(self.data)))
            self.data[key] = load_data(study, labels, splits_folder=self.splits_folder)
        return self.data[key]


def load_data(study: Study, labels: str | None, *, splits_folder: Path | None) -> list[SiteData]:
    """The sites' cases; with `labels` every site trains on these instead of its own kind."""
    task = study.task.built
    sites = listed_sites(task, study.data, study.site)
    data = load_federation(task, study.data, sites, labels=labels, splits_folder=splits_folder)
    scorable = sum(len(site.scorable("val", task.regions)) for site in data)
    refuse_no_validation(study, scorable, sum(len(site.val) for site in data))
    return data


def assign(run: Run, data: Sequence[SiteData]) -> Assignment:
    """What all machines of a run agree on, where these are the cases of all sites."""
    task, taking_part = run.study.task.built, [each for each in data if each.name != run.left_out]
    infos = [site_info(site, task, index) for index, site in enumerate(taking_part)]
    return assignment_of(run, infos)


def local_sites(run: Run, data: Sequence[SiteData], *, jobs: int = 1) -> "closing[LocalSites]":
    """The sites of one run of so many at once, in this process or in a few workers."""
    settings = run.study.engine
    threads = threads_of(settings.threads, settings.workers * jobs)
    prepare_process(threads)
    runner = SiteRunner(assign(run, data), device_of(settings.device))
    inside = [site for site in data if site.name != run.left_out]
    evaluation = SCORES_ONLY if run.left_out else run.study.evaluation
    how = {"workers": settings.workers, "threads": threads}
    sites = LocalSites(runner, inside, run.folder, evaluation, **how)
    sites.unseen = [site for site in data if site.name == run.left_out]
    return closing(sites)


class LocalSites:
    """The sites of a run on this machine; their states are files, so workers are alike."""

    quorum = 1.0  # a site that fails here stops the study

    def __init__(
        self,
        runner: SiteRunner,
        data: Sequence[SiteData],
        folder: RunFolder,
        evaluation: EvaluationSettings = SCORES_ONLY,
        *,
        workers: int = 1,
        threads: int = 1,
    ) -> None:
        assignment = runner.assignment
        self.cross_site = evaluation.cross_site
        self.unseen: Sequence[SiteData] = ()  # sites that only score the models in the end
        self.runner, self.threads = runner, threads
        self.scored = self.trained = assignment.sites
        by_name = {site.name: site for site in data}
        if assignment.method.pools:
            together = by_name[POOLED] = pool(data)
            self.trained = (site_info(together, assignment.task),)
        self.states = StateFolder(folder.path / "checkpoint" / "sites")
        rest = (by_name, folder, self.states, evaluation.pictures)
        self.worker = LocalWorker(runner, *rest)
        self.pool = None
        if workers > 1:
            spawning = torch.multiprocessing.get_context("spawn")
            initial = (assignment, runner.device, threads, rest)
            self.pool = ProcessPoolExecutor(workers, spawning, _open_worker, initial)

    def close(self) -> None:
        """Stop the workers."""
        if self.pool:
            self.pool.shutdown(cancel_futures=True)

    def ask(
        self, stage: Stage, messages: Mapping[str, Message], *, number: int, since: int
    ) -> Iterator[tuple[str, Reply]]:
        """Let the sites work on a stage, in the order of the messages."""
        infos = {info.name: info for info in (*self.trained, *self.scored)}
        tasks = [(infos[site], stage.name, messages[site], number, since) for site in messages]
        return zip(messages, self._map(LocalWorker.work, tasks), strict=True)

    def score(
        self, scoring: Scoring, messages: Mapping[str, Message] | None, *, since: int
    ) -> Iterator[Scored]:
        """Score every site's model."""
        sent = messages or dict.fromkeys(info.name for info in self.scored)
        tasks = [(info, scoring, sent[info.name], since) for info in self.scored]
        return iter(self._map(LocalWorker.score, tasks))

    def forget(self, needed: Sequence[int]) -> None:
        """Remove states that none of these rounds can ask for."""
        for info in {*self.trained, *self.scored}:
            self.states.keep_only(info.name, needed)

    def keep(self, last: int, server: Server) -> tuple[RoundLine, ...]:
        """Write each site's final model, its whole network and memory, into the run folder."""
        run, assignment = self.worker.run, self.runner.assignment
        for info in self.scored:
            state = self.states.load(info.name, last)
            assert state is not None, "every site has finalized"
            keep_model(run, info.name, run.about().method, state, assignment)
        if self.cross_site:
            write_cross_site(run, self.runner, self.worker.data)
        for data in self.unseen:
            score_unseen(run, self.runner, data, server.weights)
        return ()

    def _map(self, work: Callable[..., Any], tasks: Sequence[Any]) -> Iterable[Any]:
        if self.pool:
            return self.pool.map(_at_worker, [work.__name__] * len(tasks), tasks)
        return (work(self.worker, *task) for task in tasks)


@dataclass(frozen=True)
class LocalWorker:
    """One process's runner with the sites' data and the folder of their states."""

    runner: SiteRunner
    data: Mapping[str, SiteData]
    run: RunFolder
    states: StateFolder
    pictures: bool

    def work(self, info: SiteInfo, stage: str, message: Message, number: int, since: int) -> Reply:
        """A visit to a site, whose state is read before and written after it."""
        data, state = self.data[info.name], self._state(info, since)
        work = self.runner.assignment.stage(stage)
        visit = self.runner.visit(info, data, work, message, state, number)
        self.states.save(info.name, number, visit.state, {"round": str(number), "stage": stage})
        line = RoundLine(
            round=number,
            stage=stage,
            site=info.name,
            loss=visit.loss,
            seconds=visit.seconds,
            images=visit.images,
            down=message.nbytes,
            up=visit.reply.nbytes,
            extras=tuple(sorted({*message.extras, *visit.reply.extras})),
            numbers=dict(visit.reply.numbers),
            parts=visit.reply.bytes_by_part(),
        )
        return Reply(visit.reply, line)

    def score(
        self, info: SiteInfo, scoring: Scoring, message: Message | None, since: int
    ) -> Scored:
        """Scores of a site's model; the final ones come with pictures."""
        data, state = self.data[info.name], self._state(info, since)
        assignment = self.runner.assignment
        rows, cases, predicted, notes = self.runner.score(info, data, scoring, message, state)
        if self.pictures and scoring.split == "test" and scoring.model == "shared":
            draw_pictures(self.run, info.name, assignment.task, cases, predicted, rows)
            model_of = partial(self.states.load, since=since)
            look_inside(self.run, self.runner, info, cases, self.data, model_of)
        predicting = None
        if scoring.split == "test" and len(cases):
            site = self.runner.opened(info, data, state)
            predicting = seconds_an_image(site, assignment.method, cases)
        return replace(Scored.of(scoring, info.name, rows, notes), predicting=predicting)

    def _state(self, info: SiteInfo, since: int) -> SiteState | None:
        try:
            return self.states.load(info.name, since)
        except DamagedFile as error:
            newest = max((self.run.path / "checkpoint" / "server").iterdir())
            raise DamagedFile(
                f"{error}; bring it back from a backup, or remove {newest}: the run then goes on "
                "from the round before"
            ) from error


_worker: LocalWorker  # the runner of a worker process


def _open_worker(
    assignment: Assignment, device: torch.device, threads: int, rest: tuple[Any, ...]
) -> None:  # pragma: no cover (in a worker)
    global _worker  # a worker process has exactly one
    end_with_parent()
    prepare_process(threads)
    _worker = LocalWorker(SiteRunner(assignment, device), *rest)


def _at_worker(work: str, task: Sequence[Any]) -> Any:  # pragma: no cover (in a worker)
    return getattr(_worker, work)(*task)
