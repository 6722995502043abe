"""The runs of a study on this machine: several at once, and none stopped by another's failure."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock, Thread

from polyclinic.config import Study
from polyclinic.engine.capacity import cores, more_like_this
from polyclinic.engine.devices import device_of
from polyclinic.engine.job import Job, others_can, reason
from polyclinic.engine.local import LocalEngine
from polyclinic.engine.loop import Event, Notice
from polyclinic.engine.run import Run
from polyclinic.engine.study import Watch, checked_runs, do_run
from polyclinic.runs import RunError

START = 10.0  # seconds that a study takes before other processes, which need some to start, help


class FailedRuns(RunError):
    """Some runs failed, each with its reason; all others are done."""

    def __init__(self, runs: Sequence[Run], reasons: Sequence[tuple[Run, str]]) -> None:
        self.paths = [run.folder.path for run in runs if run.folder.exists]
        lines = [f"  {run.name}: {text}" for run, text in reasons]
        count = f"{len(lines)} of {len(runs)} runs failed; --resume tries them again:"
        super().__init__("\n".join([count, *lines]))

    def __reduce__(self) -> tuple[type[RunError], tuple[str]]:
        return RunError, (str(self),)


def run_grid(
    study: Study, root: Path, splits_folder: Path, *, resume: bool, fresh: bool, watch: Watch
) -> list[Run]:
    """Do all runs of a study that are not finished; FailedRuns names those that failed."""
    runs = checked_runs(study, root, resume=resume, fresh=fresh)
    jobs = jobs_of(study, len(runs))
    engine = LocalEngine(splits_folder, jobs=jobs)
    left = [run for run in runs if fresh or not run.folder.finished]
    engine.prepare(left)
    if len(left) == 1:  # its error is the study's
        for event in do_run(left[0], engine, fresh=fresh):
            watch(left[0], event)
    else:
        grid = Grid(engine, deque(left), jobs, fresh, watch, at_once=study.engine.jobs > 1)
        grid.do_all()
        if grid.failed:
            raise FailedRuns(runs, grid.failed)
    return runs


def jobs_of(study: Study, runs: int, there: int | None = None) -> int:
    """How many runs are done at once: as told, else one for each core; one on a graphics card."""
    told = study.engine.jobs
    if not told and device_of(study.engine.device).type == "cpu":
        told = (there or cores()) // study.engine.workers
    return max(1, min(told, runs))


@dataclass
class Grid:
    """Runs in a queue, from which this process takes the next one and so do its helpers."""

    engine: LocalEngine
    queue: deque[Run]
    jobs: int
    fresh: bool
    watch: Watch
    at_once: bool
    failed: list[tuple[Run, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.lock = Lock()
        self.helpers: list[_Helper] = []
        self.asked = False
        self.started = time.monotonic()

    def do_all(self) -> None:
        """Do every run; whatever interrupts this process ends the others."""
        try:
            self._ask_for_help()
            while run := self.next(here=True):
                try:
                    for event in do_run(run, self.engine, fresh=self.fresh):
                        self.tell(run, event)
                        self._ask_for_help()
                except Exception as error:  # noqa: BLE001 (whatever it is, the others go on)
                    self.fail(run, reason(error))
            for helper in self.helpers:
                helper.join()
        finally:
            for helper in self.helpers:
                helper.stop()

    def next(self, *, here: bool) -> Run | None:
        """The next run to do; None where none is left, or none that another process could do."""
        with self.lock:
            fitting = (run for run in self.queue if here or others_can(run))
            run = next(fitting, None)
            if run is not None:
                self.queue.remove(run)
            return run

    def tell(self, run: Run, event: Event) -> None:
        """Let whoever watches know."""
        with self.lock:
            self.watch(run, event)

    def fail(self, run: Run, why: str) -> None:
        """Note a run that failed; the others go on."""
        self.failed.append((run, why))
        self.tell(run, Notice(f"failed: {why}"))

    def _ask_for_help(self) -> None:
        """Once the study takes longer than starting helpers does, start what memory carries."""
        waited = time.monotonic() - self.started >= START
        if self.asked or not (self.at_once or waited) or not self.queue:
            return
        self.asked = True
        wanted = min(self.jobs - 1, len(self.queue))
        room = None if self.at_once else more_like_this()
        for _ in range(wanted if room is None else min(wanted, room)):
            self.helpers.append(_Helper(self))
            self.helpers[-1].start()


class _Helper(Thread):
    """Does runs of the grid in another process, and starts a new one where that has died."""

    def __init__(self, grid: Grid) -> None:
        super().__init__(daemon=True)
        self.grid = grid
        self.job: Job | None = None
        self.stopped = False

    def run(self) -> None:
        while not self.stopped and (run := self.grid.next(here=False)):
            try:
                for event in self._events(run):
                    self.grid.tell(run, event)
            except RunError as error:
                if not self.stopped:
                    self.grid.fail(run, str(error))
        self.stop()

    def stop(self) -> None:
        self.stopped = True
        if self.job:
            self.job.close()

    def _events(self, run: Run) -> Iterator[Event]:
        if self.job is None or not self.job.alive:
            self.job = Job(self.grid.engine.splits_folder, self.grid.jobs)
        return self.job.do(run, fresh=self.grid.fresh)
