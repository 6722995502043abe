"""Runs of a study that begin alike: one goes on from the last round of the other."""

import json
import os
import shutil
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from polyclinic.config import to_toml
from polyclinic.config.printing import plain
from polyclinic.engine.checkpoint import Checkpoint
from polyclinic.engine.run import Run
from polyclinic.runs import RunFolder, clear_errors

_LATER = {"choose", "pictures", "cross_site"}  # of evaluation: what rounds do not depend on


class Sharing:
    """For each run the one that it goes on from, where another of the study begins as it does.

    That one keeps its checkpoint for as long as somebody waits for it.
    """

    def __init__(self, runs: Sequence[Run]) -> None:
        self.runs = runs
        self.begins_as = dict(_pairs(runs))

    def other(self, run: Run) -> Run | None:
        """The run that has all rounds of this one, or the first of them; None for most."""
        return self.begins_as.get(run.folder.path)

    def rounds(self, run: Run, *, fresh: bool) -> int:
        """How many rounds of another run a new run will go on from; 0 once it was begun."""
        other = self.other(run)
        if other is None or (run.folder.exists and not fresh):
            return 0
        there = fresh or not other.folder.finished or _last_state(other).exists()
        return rounds_of(other) if there else 0

    def start(self, run: Run) -> bool:
        """Give a run the rounds of the other, to be resumed; False where it must train them."""
        other = self.other(run)
        if other is None or not other.folder.finished or not _last_state(other).exists():
            return False
        with put_in_place(run.folder) as new:
            _fill(new, run, other)
        return True

    def tidy(self, left: Collection[Run]) -> None:
        """Remove the checkpoints of finished runs that none of those left goes on from."""
        needed = [other for run in left if (other := self.other(run))]
        kept = {run.folder.path for run in (*left, *needed)}
        for run in self.runs:
            if run.folder.path not in kept and run.folder.finished:
                _checkpoint(run).remove()


@contextmanager
def put_in_place(folder: RunFolder) -> Iterator[RunFolder]:
    """A folder to fill, which takes the place of this one as a whole or not at all."""
    new = RunFolder(folder.path.with_name(f"new-{folder.path.name}"))
    with folder.lock(), new.lock(), clear_errors(new.path):
        new.clear()
        yield new
        shutil.rmtree(folder.path)
        new.path.rename(folder.path)


def rounds_of(run: Run) -> int:
    """The rounds of a run, without the closing one."""
    return run.study.federation.rounds


def _pairs(runs: Sequence[Run]) -> Iterator[tuple[Path, Run]]:
    alike: dict[str, list[Run]] = {}
    for run in sorted(runs, key=rounds_of):
        before = alike.setdefault(_beginning(run), [])
        fitting = [other for other in before if _reaches(other, run)]
        if fitting:
            yield run.folder.path, max(fitting, key=rounds_of)
        before.append(run)


def _beginning(run: Run) -> str:
    """All settings that rounds depend on, whatever their number."""
    settings = plain(run.study)
    (method,) = settings["method"]
    late = {"title", "then", *type(run.choice.built).late}
    settings["method"] = {key: each for key, each in method.items() if key not in late}
    settings["evaluation"] = {k: v for k, v in settings["evaluation"].items() if k not in _LATER}
    settings["federation"].pop("rounds")
    settings.pop("name")
    return json.dumps(settings, sort_keys=True, default=str)


def _reaches(other: Run, run: Run) -> bool:
    """Whether the last round of one run is a round of another that begins as it does."""
    last, rounds = rounds_of(other), rounds_of(run)
    if last == rounds:
        return True
    method, training = run.choice.built, run.study.training
    return (
        training.schedule == "constant"
        and not method.by_rounds
        and type(method).__module__.startswith("polyclinic.")  # others may look at what they like
        and method.warm_rounds(last) == method.warm_rounds(rounds)
        and run.study.evaluation.due(last, rounds)
    )


def _fill(new: RunFolder, run: Run, other: Run) -> None:
    last = rounds_of(other)
    own = {
        "method": run.choice.title,
        "swept": dict(run.choice.swept),
        "started": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "shared_rounds": last,
        "shared_with": other.name,
    }
    new.create(to_toml(run.study), other.folder.about().model_copy(update=own))
    new.append(other.folder.rounds(), other.folder.scores(model=None), other.folder.tables())
    new.forget_after(last)
    source = _checkpoint(other).folder
    for file in source.rglob("round-*.safetensors"):
        if int(file.stem.removeprefix("round-")) <= last:
            to = new.path / "checkpoint" / file.relative_to(source)
            to.parent.mkdir(parents=True, exist_ok=True)
            _link(file, to)


def _link(file: Path, to: Path) -> None:
    """The same file under another name, or a copy where a disk knows no links."""
    try:
        os.link(file, to)  # states are never changed in place
    except OSError:
        shutil.copyfile(file, to)


def _checkpoint(run: Run) -> Checkpoint:
    return Checkpoint(run.folder.path / "checkpoint")


def _last_state(run: Run) -> Path:
    """The server's checkpoint of the last round, which there is only as long as all others are."""
    return _checkpoint(run).file(rounds_of(run))
