"""The runs of a study on this machine: several at once, and none stopped by another's failure."""

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Condition, Thread

from polyclinic.config import Study
from polyclinic.engine.capacity import START, cores, helpers_wanted
from polyclinic.engine.devices import device_of
from polyclinic.engine.job import Job
from polyclinic.engine.local import LocalEngine
from polyclinic.engine.loop import Event, Notice, Reused
from polyclinic.engine.other_process import others_can, reason
from polyclinic.engine.reuse import alike, called, take_over
from polyclinic.engine.run import Run
from polyclinic.engine.sharing import Sharing
from polyclinic.engine.study import Watch, checked_runs, do_run
from polyclinic.runs import RunError

Work = Callable[..., Iterator[Event]]  # on a run, in this process or in another


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
    study: Study,
    root: Path,
    splits_folder: Path,
    *,
    resume: bool,
    fresh: bool,
    reuse: Sequence[str | Path] = (),
    watch: Watch,
) -> list[Run]:
    """Do all runs of a study that are not finished; FailedRuns names those that failed.

    What was finished below the folders to `reuse` is taken over where it is the same.
    """
    runs = checked_runs(study, root, resume=resume, fresh=fresh)
    same = alike(runs, reuse)
    for run in runs:
        if other := same.get(run.folder.path):
            take_over(run, other)
            watch(run, Reused(called(other)))
    jobs = jobs_of(study, len(runs))
    engine = LocalEngine(splits_folder, jobs=jobs)
    left = [run for run in runs if fresh or not run.folder.finished]
    engine.prepare(left)
    grid = Grid(engine, Sharing(runs), deque(left), jobs, fresh, watch, study.engine.jobs > 1)
    if len(left) == 1:  # its error is the study's
        grid.do(left[0], partial(do_run, engine=engine))
        grid.sharing.tidy(())
    else:
        grid.do_all()
        if grid.failed:
            raise FailedRuns(runs, grid.failed)
    return runs


def jobs_of(study: Study, runs: int, there: int | None = None) -> int:
    """How many runs are done at once: as told, else one for each core; one on a graphics card."""
    told = study.engine.jobs
    if not told and device_of(study.engine.device).type == "cpu":
        told = (there or cores()) // max(1, study.engine.workers)
    return max(1, min(told, runs))


@dataclass
class Grid:
    """Runs in a queue, from which this process takes the next one and so do its helpers.

    A run that goes on from another one waits until that is done.
    """

    engine: LocalEngine
    sharing: Sharing
    queue: deque[Run]
    jobs: int
    fresh: bool
    watch: Watch
    at_once: bool
    failed: list[tuple[Run, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.changed = Condition()
        self.working: list[Run] = []
        self.helpers: list[_Helper] = []
        self.asked = False
        self.stopped = False
        self.started = time.monotonic()

    def do_all(self) -> None:
        """Do every run; whatever interrupts this process ends the others."""
        try:
            self.tidy()
            while run := self.next(here=True):
                self.attempt(run, partial(do_run, engine=self.engine))
            for helper in self.helpers:
                helper.join()
        finally:
            self.stopped = True
            with self.changed:
                self.queue.clear()
                self.changed.notify_all()
            for helper in self.helpers:
                helper.stop()

    def next(self, *, here: bool) -> Run | None:
        """The next run to do; None where none is left, or none that another process could do."""
        with self.changed:
            while True:
                self._ask_for_help()
                ready = (run for run in self.queue if self._ready(run))
                run = next((run for run in ready if here or others_can(run)), None)
                if run is not None:
                    self.queue.remove(run)
                    self.working.append(run)
                if run is not None or all(map(self._ready, self.queue)):
                    return run
                self.changed.wait()

    def attempt(self, run: Run, work: Work) -> None:
        """Do a run, and note it where it fails: the others go on."""
        try:
            self.do(run, work)
        except Exception as error:  # noqa: BLE001 (whatever it is, the others go on)
            if not self.stopped:
                self.failed.append((run, why := reason(error)))
                self._tell(run, Notice(f"failed: {why}"))
        with self.changed:
            self.working.remove(run)
            self.tidy()
            self.changed.notify_all()

    def do(self, run: Run, work: Work) -> None:
        """Do a run, from the last round of another one where it begins as that does."""
        new = self.fresh or not run.folder.exists
        shared = new and self.sharing.start(run)
        for event in work(run, fresh=self.fresh and not shared):
            self._tell(run, event)

    def tidy(self) -> None:
        """Keep of finished runs only what others are still to go on from."""
        self.sharing.tidy([*self.queue, *self.working])

    def _ready(self, run: Run) -> bool:
        other = self.sharing.other(run)
        begun = run.folder.exists and not self.fresh
        return begun or not any(each is other for each in (*self.queue, *self.working))

    def _tell(self, run: Run, event: Event) -> None:
        with self.changed:
            self.watch(run, event)
            self._ask_for_help()

    def _ask_for_help(self) -> None:
        """Once the study takes longer than starting helpers does, start what memory carries."""
        waited = time.monotonic() - self.started >= START
        if self.asked or not (self.at_once or waited) or not self.queue:
            return
        self.asked = True
        wanted = min(self.jobs - 1, len(self.queue))
        for _ in range(helpers_wanted(wanted, at_once=self.at_once)):
            self.helpers.append(_Helper(self))
            self.helpers[-1].start()


class _Helper(Thread):
    """Does runs of the grid in another process, and starts a new one where that has died."""

    def __init__(self, grid: Grid) -> None:
        super().__init__(daemon=True)
        self.grid = grid
        self.job: Job | None = None

    def run(self) -> None:
        while run := self.grid.next(here=False):
            self.grid.attempt(run, self._events)
        self.stop()

    def stop(self) -> None:
        if self.job:
            self.job.close()

    def _events(self, run: Run, *, fresh: bool) -> Iterator[Event]:
        if self.job is None or not self.job.alive:
            self.job = Job(self.grid.engine.splits_folder, self.grid.jobs)
        return self.job.do(run, fresh=fresh)
