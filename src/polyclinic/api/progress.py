"""What a terminal, a notebook or a file shows of a study under way."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn

from polyclinic.api.console import CONSOLE
from polyclinic.config import Study, uniform_row_told
from polyclinic.engine.loop import Event, Notice, Reused, RoundDone
from polyclinic.engine.planning import Plan
from polyclinic.engine.run import Run, runs_of
from polyclinic.engine.sharing import Sharing
from polyclinic.engine.sites import Scored
from polyclinic.engine.study import Watch
from polyclinic.runs import RoundLine

Show = Callable[[str], None]


@contextmanager
def watching(study: Study, root: Path, *, fresh: bool = False) -> Iterator[Watch]:
    """A live bar for each run; a line for each in a notebook; else plain lines, one a round.

    Across hospitals each site has a bar or lines of its own. With `fresh` all runs are still to do.
    """
    pace = _Pace(study, root, fresh=fresh)
    if told := uniform_row_told(study.method, study.federation):
        CONSOLE.print(told, soft_wrap=True)
    if study.training.pretrain == "synthetic":
        steps = study.training.pretrain_steps
        CONSOLE.print(f"every run's network first learns from drawn images, for {steps} steps")
    show = _notebook()  # asked first: kernels of notebooks say that they are terminals
    if show or not CONSOLE.is_terminal:
        yield _Cell(pace, show) if show else _Lines(pace, CONSOLE.print)
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[news]}", markup=False),
    )
    with Progress(*columns, console=CONSOLE) as progress:
        yield _Bars(pace, progress)


class _Pace:
    """Numbers that all displays show: loss, validation, speed, runs done and time left."""

    def __init__(self, study: Study, root: Path, *, fresh: bool) -> None:
        self.apart = study.engine.name == "flower"
        runs = runs_of(study, root)
        sharing = Sharing(runs)
        self.left = {
            run.folder.path: rounds_of(run)
            - max(sharing.rounds(run, fresh=fresh), 0 if fresh else _done(run, rounds_of(run)))
            for run in runs
        }
        self.started = math.inf
        self.rounds_done = 0
        self.seen: set[Path] = set()
        self.validation: dict[Path, str] = {}
        self.lines: dict[Path, list[RoundLine]] = {}

    def opening(self, run: Run) -> Iterator[str]:
        """Where a run that is new here starts, if not from the beginning."""
        folder = run.folder
        if folder.path in self.seen or not folder.exists or folder.finished:
            return
        about = folder.about()
        if about.shared_rounds:
            yield f"goes on from {about.shared_with}, round {about.shared_rounds}"
        elif about.pretrained:
            yield f"starts from {about.pretrained}"

    def take(self, run: Run, event: Event) -> None:
        path = run.folder.path
        self.seen.add(path)
        if isinstance(event, Reused):
            self.left[path] = 0
        elif isinstance(event, RoundLine):
            self.started = min(self.started, time.monotonic() - event.seconds)
            self.lines.setdefault(path, []).append(event)
        elif isinstance(event, RoundDone) and event.round > 0:
            self.rounds_done += 1
            self.left[path] = rounds_of(run) - event.round
            if event.validation is not None:
                self.validation[path] = f"  validation Dice {event.validation:.3f}"

    def validated(self, run: Run) -> str:
        return self.validation.get(run.folder.path, "")

    def news(self, run: Run, round_number: int) -> str:
        lines = self.lines.get(run.folder.path, [])
        seconds = sum(line.seconds for line in lines)
        images = sum(line.images for line in lines)
        losses = [line.loss for line in lines if line.loss == line.loss]
        loss = f"  loss {sum(losses) / len(losses):.3f}" if losses else ""
        speed = f"  {images / seconds:.0f} images/s" if images else ""
        last = run.study.federation.rounds
        where = f"round {round_number}/{last}" if round_number <= last else "closing"
        return f"{where}{loss}{self.validated(run)}{speed}{self._all_runs()}"

    def next_round(self, run: Run) -> None:
        self.lines.pop(run.folder.path, None)

    def _all_runs(self) -> str:
        if not self.rounds_done or self.started == math.inf:
            return ""
        done = sum(not left for left in self.left.values())
        runs = f"  {done} of {len(self.left)} runs done" if len(self.left) > 1 else ""
        pace = (time.monotonic() - self.started) / self.rounds_done
        return f"{runs}  {clock(pace * sum(self.left.values()))} left"


class _Lines:
    def __init__(self, pace: _Pace, say: Show) -> None:
        self.pace = pace
        self.say = say

    def __call__(self, run: Run, event: Event) -> None:
        name = run.name
        for line in (*self.pace.opening(run), *_remarks(event)):
            self.say(f"{name}  {line}")
        if self.pace.apart and isinstance(event, RoundLine) and not event.missed:
            self.say(f"{name}  {event.site}: {_work(event)}")
        self.pace.take(run, event)
        if isinstance(event, RoundDone) and event.round > 0:
            self.say(f"{name}  {self.pace.news(run, event.round)}")
            self.pace.next_round(run)


class _Cell:
    """One text under a notebook's cell: what is to be remarked, and a line for each run."""

    def __init__(self, pace: _Pace, show: Show) -> None:
        self.pace = pace
        self.show = show
        self.remarks: list[str] = []
        self.news: dict[str, str] = {}

    def __call__(self, run: Run, event: Event) -> None:
        name = run.name
        told = (*self.pace.opening(run), *_remarks(event))
        self.remarks += [f"{name}  {line}" for line in told]
        self.pace.take(run, event)
        if isinstance(event, RoundDone) and event.round > 0:
            self.news[name] = self.pace.news(run, event.round)
            self.pace.next_round(run)
        if told or isinstance(event, RoundDone):
            runs = (f"{name}  {news}" for name, news in self.news.items())
            self.show("\n".join((*self.remarks, *runs)))


class _Bars:
    def __init__(self, pace: _Pace, progress: Progress) -> None:
        self.pace = pace
        self.progress = progress
        self.bars: dict[str, TaskID] = {}
        progress.add_task("reading images", total=None, news="")

    def __call__(self, run: Run, event: Event) -> None:
        name = run.name
        if isinstance(event, Reused):  # images are not read yet
            self.pace.take(run, event)
            self.progress.console.print(f"{name}  {next(_remarks(event))}")
            return
        if not self.bars:  # all images are read
            self.progress.remove_task(self.progress.task_ids[0])
        if name not in self.bars:
            self.bars[name] = self.progress.add_task(name, total=rounds_of(run), news="")
        for line in (*self.pace.opening(run), *_remarks(event)):
            self.progress.console.print(f"{name}  {line}")
        if isinstance(event, Notice):
            return
        self.pace.take(run, event)
        done = event.round if isinstance(event, RoundDone) else None
        if isinstance(event, Scored) and event.split == "test":
            news = f"scored {event.site}{self.pace.validated(run)}"
        else:
            site = "" if isinstance(event, RoundDone) else event.site
            news = f"{self.pace.news(run, event.round)}  {site}"
        self.progress.update(self.bars[name], completed=done, news=news)
        if isinstance(event, RoundDone):
            self.pace.next_round(run)
        elif self.pace.apart:
            self._show_site(run, event)

    def _show_site(self, run: Run, event: RoundLine | Scored) -> None:
        name = f"  {event.site}"
        if name not in self.bars:
            self.bars[name] = self.progress.add_task(name, total=rounds_of(run), news="")
        news = f"scored ({event.split})" if isinstance(event, Scored) else _work(event)
        bar = self.bars[name]
        self.progress.update(bar, completed=event.round, news=event.missed or news)


def rounds_of(run: Run) -> int:
    """The rounds of a run, the closing one included."""
    return run.study.federation.rounds + 1


def clock(seconds: float) -> str:
    """A duration as people read it: minutes and seconds, or hours before them."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def shown_plan(plan: Plan) -> Iterator[str]:
    """A line for each run of a study, then what is left and how long it will take."""
    width = max(len(each.run.name) for each in plan.runs)
    for each in plan.runs:
        left = f"  about {clock(each.seconds)}" if each in plan.left else ""
        yield f"{each.run.name:<{width}}  {each.state}{left}"
    done = len(plan.runs) - len(plan.left)
    count = f"runs: {len(plan.runs)}, {done} done, {len(plan.left)} to do"
    if plan.shared:
        count += f"; {plan.shared} of their {plan.rounds} rounds are shared"
    how = f"{plan.jobs} at once: about {clock(plan.seconds)}, {plan.measured}"
    yield f"{count}; {how}" if plan.left else count


def _notebook() -> Show | None:
    """A function that replaces the text under the cell that is running; None outside notebooks."""
    try:
        from IPython import get_ipython
        from IPython.display import DisplayHandle
    except ImportError:
        return None
    if not hasattr(get_ipython(), "kernel"):
        return None
    handle = DisplayHandle()
    handle.display({"text/plain": ""}, raw=True)
    return lambda text: handle.update({"text/plain": text}, raw=True)


def _done(run: Run, rounds: int) -> int:
    """How many rounds of a run are done and need not be done again."""
    if run.folder.finished:
        return rounds
    return max((line.round for line in run.folder.rounds()), default=0)


def _work(line: RoundLine) -> str:
    """What a site did, in a few words."""
    loss = f"  loss {line.loss:.3f}" if line.loss == line.loss else ""
    sent = f"{line.up / 1e6:.2f} MB sent"
    return f"round {line.round}, {line.stage}{loss}  {line.seconds:.1f} s  {sent}"


def _remarks(event: Event) -> Iterator[str]:
    """A line about the run, or about a site that was left out, where the event tells of one."""
    if isinstance(event, Reused):
        yield f"is done: the same as {event.other}"
    elif isinstance(event, Notice):
        yield f"warning: {event.text}"
    elif not isinstance(event, RoundDone) and event.missed:
        yield f"round {event.round}: {event.site} is left out: {event.missed}"
