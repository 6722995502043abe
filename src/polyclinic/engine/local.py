"""The local engine: all sites on this machine, in this process or in several."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from polyclinic.config import EvaluationSettings, Study
from polyclinic.data.cases import SiteData, pool
from polyclinic.data.load import load_federation
from polyclinic.data.sources import listed_sites
from polyclinic.engine.cross_site import write_cross_site
from polyclinic.engine.devices import device_of, threads_of, workers_of
from polyclinic.engine.local_worker import LocalWorker
from polyclinic.engine.other_process import Order, others_can, owner_of_this, reason, receive, send
from polyclinic.engine.process import prepare_process
from polyclinic.engine.run import Assignment, Run, assignment_of, site_info
from polyclinic.engine.site_runner import Scoring, SiteRunner
from polyclinic.engine.sites import Reply, Scored
from polyclinic.engine.states import StateFolder, keep_model
from polyclinic.engine.study import refuse_no_validation, refuse_unsuitable
from polyclinic.engine.unseen import score_unseen
from polyclinic.engine.workers import SiteHelper, Workers
from polyclinic.federation.message import Message
from polyclinic.federation.method import Stage
from polyclinic.federation.server import Server
from polyclinic.runs import RoundLine, RunError, RunFolder

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

    def open(self, run: Run) -> "AbstractContextManager[LocalSites]":
        """The sites of one run, at which other processes may help."""
        start = partial(SiteHelper, self.splits_folder, self.jobs) if others_can(run) else None
        return local_sites(run, self._data(run), jobs=self.jobs, start=start)

    def alone(self, run: Run) -> tuple[Run, int]:
        """The run as one process does its share of it, and how many processes would do it."""
        workers, threads = processes_of(
            run, assign(run, self._data(run)), self.jobs, helped=others_can(run)
        )
        return in_one_process(run, threads), workers

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


def processes_of(run: Run, assignment: Assignment, jobs: int, *, helped: bool) -> tuple[int, int]:
    """How many processes work at the sites of a run, of so many at once, and threads of each."""
    settings, rounds = run.study.engine, assignment.method.each_round()
    in_turn = assignment.method.pools or all(stage.ring for stage in rounds)
    together = helped and not in_turn and device_of(settings.device).type == "cpu"
    sites = len(assignment.sites) if together else 1
    workers = workers_of(settings.workers, settings.threads, jobs, sites)
    return workers, threads_of(settings.threads, workers * jobs)


def in_one_process(run: Run, threads: int) -> Run:
    """The run without the help of others."""
    engine = run.study.engine.model_copy(update={"workers": 1, "threads": threads})
    return replace(run, study=run.study.model_copy(update={"engine": engine}))


@contextmanager
def local_sites(
    run: Run,
    data: Sequence[SiteData],
    *,
    jobs: int = 1,
    start: Callable[[Order], SiteHelper] | None = None,
) -> "Iterator[LocalSites]":
    """The sites of one run of so many at once; `start` starts a process that helps at them."""
    assignment = assign(run, data)
    workers, threads = processes_of(run, assignment, jobs, helped=start is not None)
    prepare_process(threads)
    inside = [site for site in data if site.name != run.left_out]
    evaluation = SCORES_ONLY if run.left_out else run.study.evaluation
    runner = SiteRunner(assignment, device_of(run.study.engine.device))
    helper = partial(start, Order.of(in_one_process(run, threads))) if start else None
    helping = Workers(workers - 1, helper, at_once=run.study.engine.workers > 1)
    with closing(LocalSites(runner, inside, run.folder, evaluation, threads, helping)) as sites:
        sites.unseen = [site for site in data if site.name == run.left_out]
        yield sites


class LocalSites:
    """The sites of a run on this machine; their states are files, so workers are alike."""

    quorum = 1.0  # a site that fails here stops the study

    def __init__(
        self,
        runner: SiteRunner,
        data: Sequence[SiteData],
        folder: RunFolder,
        evaluation: EvaluationSettings = SCORES_ONLY,
        threads: int = 1,
        workers: Workers | None = None,
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
        self.worker = LocalWorker(runner, by_name, folder, self.states, evaluation.pictures)
        self.workers = workers or Workers()

    def close(self) -> None:
        """End the processes that help."""
        self.workers.close()

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
        return self._map(LocalWorker.score, tasks)

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
            write_cross_site(run, self.runner, self.worker.data, pictures=self.worker.pictures)
        for data in self.unseen:
            score_unseen(run, self.runner, data, server.weights)
        return ()

    def _map(self, work: Callable[..., Any], tasks: Sequence[Any]) -> Iterator[Any]:
        return self.workers.map(work.__name__, partial(work, self.worker), tasks)


def help_at_sites() -> None:  # pragma: no cover (in a process that helps)
    """What a `SiteHelper` does: open the sites of a run, and work at them as told."""
    owner = owner_of_this()
    splits_folder, jobs, order = receive(owner)
    engine = LocalEngine(splits_folder, jobs=jobs)
    with engine.open(order.run()) as sites, suppress(EOFError):
        send(owner, None)
        while True:
            name, task = receive(owner)
            try:
                answer = (True, getattr(sites.worker, name)(*task))
            except Exception as error:  # noqa: BLE001 (the owner is told)
                answer = (False, reason(error))
            send(owner, answer)
