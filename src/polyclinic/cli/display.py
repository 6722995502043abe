"""What the terminal shows of a study under way, and of its results."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn
from rich.table import Table

from polyclinic.config import Study
from polyclinic.data.check import Summary
from polyclinic.engine.loop import Event, RoundDone, Scored
from polyclinic.engine.study import Run, Watch
from polyclinic.report import summary_table
from polyclinic.runs import RoundLine

CONSOLE = Console()
if not CONSOLE.is_terminal:
    CONSOLE.width = 160  # a file or a pipe has no edge to wrap at


@contextmanager
def watching(study: Study) -> Iterator[Watch]:
    """A live bar for each run; plain lines, one a round, where there is no terminal."""
    if not CONSOLE.is_terminal:
        yield _Lines(study, CONSOLE.print)
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[news]}"),
    )
    with Progress(*columns, console=CONSOLE) as progress:
        yield _Bars(study, progress)


def show_summary(paths: Sequence[Path]) -> None:
    """The comparison table of runs."""
    CONSOLE.print(summary_table(paths))


def show_check(summary: Summary) -> None:
    """What a folder of sites holds, and what is wrong or odd about it."""
    table = Table(title=f"{summary.task.name}: {len(summary.sites)} sites")
    for heading in ("site", "cases", "patients", "train/val/test", "size", "classes", "labels"):
        table.add_column(heading)
    for site in summary.sites:
        splits = "/".join(str(site.splits.get(split, 0)) for split in ("train", "val", "test"))
        sizes = {f"{high}×{wide}" for high, wide in (site.smallest, site.largest)}
        shares = "  ".join(f"{name} {share:.1%}" for name, share in site.shares.items())
        kinds = "  ".join(f"{kind} {count}" for kind, count in site.kinds.items())
        cells = (site.cases, site.patients, splits if site.splits else "not yet", "–".join(sizes))
        table.add_row(site.name, *map(str, cells), shares, kinds)
    CONSOLE.print(table)
    for warning in summary.warnings:
        CONSOLE.print(f"odd: {warning}", style="yellow", markup=False, highlight=False)
    for mistake in summary.mistakes:
        CONSOLE.print(f"wrong: {mistake}", style="red", markup=False, highlight=False)
    CONSOLE.print(f"{len(summary.mistakes)} mistakes, {len(summary.warnings)} oddities")


class _Pace:
    """Numbers that both displays show: loss, validation, speed and time left."""

    def __init__(self, study: Study) -> None:
        self.rounds = study.federation.rounds + 1
        self.left = len(study.method) * len(study.seeds) * self.rounds
        self.started = time.monotonic()
        self.rounds_done = 0
        self.validation = ""
        self.run: Run | None = None
        self.lines: list[RoundLine] = []

    def take(self, run: Run, event: Event) -> None:
        if run is not self.run:
            self.run, self.validation = run, ""
        if isinstance(event, RoundLine):
            self.lines.append(event)
        elif isinstance(event, RoundDone) and event.round > 0:
            self.rounds_done += 1
            if event.validation is not None:
                self.validation = f"  validation Dice {event.validation:.3f}"

    def news(self, round_number: int) -> str:
        seconds = sum(line.seconds for line in self.lines)
        images = sum(line.images for line in self.lines)
        losses = [line.loss for line in self.lines if line.loss == line.loss]
        loss = f"  loss {sum(losses) / len(losses):.3f}" if losses else ""
        speed = f"  {images / seconds:.0f} images/s" if images else ""
        where = (
            f"round {round_number}/{self.rounds - 1}" if round_number < self.rounds else "closing"
        )
        return f"{where}{loss}{self.validation}{speed}{self._left()}"

    def _left(self) -> str:
        if not self.rounds_done:
            return ""
        pace = (time.monotonic() - self.started) / self.rounds_done
        minutes, seconds = divmod(round(pace * (self.left - self.rounds_done)), 60)
        return f"  {minutes}:{seconds:02d} left"


class _Lines:
    def __init__(self, study: Study, say: Callable[[str], None]) -> None:
        self.pace = _Pace(study)
        self.say = say

    def __call__(self, run: Run, event: Event) -> None:
        self.pace.take(run, event)
        if isinstance(event, RoundDone) and event.round > 0:
            self.say(f"{run.choice.label} seed {run.seed}  {self.pace.news(event.round)}")
            self.pace.lines.clear()


class _Bars:
    def __init__(self, study: Study, progress: Progress) -> None:
        self.study = study
        self.pace = _Pace(study)
        self.progress = progress
        self.bars: dict[str, TaskID] = {}

    def __call__(self, run: Run, event: Event) -> None:
        name = f"{run.choice.label} seed {run.seed}"
        if name not in self.bars:
            self.bars[name] = self.progress.add_task(name, total=self.pace.rounds, news="")
        self.pace.take(run, event)
        done = event.round if isinstance(event, RoundDone) else None
        site = event.site if isinstance(event, RoundLine | Scored) else ""
        news = f"{self.pace.news(event.round)}  {site}"
        self.progress.update(self.bars[name], completed=done, news=news)
        if isinstance(event, RoundDone):
            self.pace.lines.clear()
