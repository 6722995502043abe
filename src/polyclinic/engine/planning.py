"""What is left of a study, and how long it will take."""

from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory

from polyclinic.config import Study
from polyclinic.engine.grid import jobs_of
from polyclinic.engine.local import LocalEngine
from polyclinic.engine.reuse import alike, called
from polyclinic.engine.run import Run, runs_of
from polyclinic.engine.sharing import Sharing, rounds_of
from polyclinic.engine.study import do_run
from polyclinic.runs import RoundLine, RunFolder, SiteInfo

STEPS = 2  # of training that are timed at a site


@dataclass(frozen=True)
class Planned:
    """A run, how many of its rounds are done, and the seconds that the others will take.

    It will go on from this round of another run; 0 where it does not. One of another study that is
    the same has `taken` its place.
    """

    run: Run
    done: int
    seconds: float
    shared: int = 0
    shared_with: str = ""
    taken: str = ""

    @property
    def state(self) -> str:
        """How far it is, in a few words."""
        if self.taken:
            return f"done as {self.taken}"
        if self.run.folder.finished and not self.seconds:
            return "done"
        rounds = rounds_of(self.run)
        if self.done:
            return f"{min(self.done, rounds)} of {rounds} rounds done"
        return f"to do after {self.shared_with}, round {self.shared}" if self.shared else "to do"


@dataclass(frozen=True)
class Plan:
    """The runs of a study, how many are done at once, and what the estimate was made by."""

    runs: tuple[Planned, ...]
    jobs: int
    measured: str

    @property
    def left(self) -> list[Planned]:
        """What is not done."""
        return [each for each in self.runs if not each.state.startswith("done")]

    @property
    def seconds(self) -> float:
        """How long all that is left takes, so many at once."""
        alone = [each.seconds for each in self.left]
        return max(sum(alone) / self.jobs, max(alone, default=0.0))

    @property
    def rounds(self) -> int:
        """The rounds of all runs that are left."""
        return sum(rounds_of(each.run) for each in self.left)

    @property
    def shared(self) -> int:
        """How many of them are not trained again, because another run has them."""
        return sum(each.shared for each in self.left)


@dataclass(frozen=True)
class _Pace:
    """Seconds of a method for an image that it trains with, at these sites."""

    seconds: float
    sites: Sequence[SiteInfo]

    def of_round(self, study: Study) -> float:
        training = study.training
        if training.iterations:
            images = sum(min(training.batch, site.train) for site in self.sites)
            images *= training.iterations
        else:
            images = sum(site.train for site in self.sites) * (training.epochs or 1)
        return self.seconds * images * study.federation.participation


def plan_of(
    study: Study,
    root: Path,
    splits_folder: Path,
    *,
    fresh: bool,
    reuse: Sequence[str | Path] = (),
) -> Plan:
    """The plan of a study, timed by its finished runs, else by a few steps of each method."""
    runs = runs_of(study, root)
    same = alike(runs, reuse)
    jobs = jobs_of(study, len(runs))
    finished = [run for run in runs if run.folder.finished]
    if finished:
        measured = f"as long as those that are done took ({len(finished)})"
        paces = [(run.choice.name, _taken(run)) for run in finished]
    else:
        measured = f"by {STEPS} training steps of each method on this machine; scoring comes on top"
        engine = LocalEngine(splits_folder, jobs=jobs)
        left = [run for run in runs if run.folder.path not in same]
        each = {run.choice.name: run for run in reversed(left)}
        paces = [(name, _tried(run, engine)) for name, run in each.items()]
    sharing, planned = Sharing(runs), []
    for run in runs:
        if other := same.get(run.folder.path):
            planned.append(Planned(run, rounds_of(run), 0.0, taken=called(other)))
            continue
        own = [pace for name, pace in paces if name == run.choice.name]
        known = own or [pace for _, pace in paces]
        seconds = fmean(pace.of_round(run.study) for pace in known)
        planned.append(_planned(run, seconds, sharing, fresh=fresh))
    return Plan(tuple(planned), jobs, measured)


def _planned(run: Run, seconds: float, sharing: Sharing, *, fresh: bool) -> Planned:
    rounds, shared = rounds_of(run), sharing.rounds(run, fresh=fresh)
    other = sharing.other(run)
    begun = (shared, other.name if other else "")
    if run.folder.finished and not fresh:
        return Planned(run, rounds, 0.0, *begun)
    lines = () if fresh else run.folder.rounds()
    done = max((line.round for line in lines), default=0)
    left = max(1, rounds - max(done, shared))  # something is left to do
    return Planned(run, done, left * seconds, *begun)


def _taken(run: Run) -> _Pace:
    """The pace of a finished run."""
    end, images = run.folder.end(), sum(line.images for line in run.folder.rounds())
    assert end is not None, "the run is finished"
    return _Pace(end.seconds / max(1, images), run.folder.about().sites)


def _tried(run: Run, engine: LocalEngine) -> _Pace:
    """The pace of the first steps of a run at two sites, of which nothing is kept."""
    short = run.study.training.model_copy(update={"iterations": STEPS, "epochs": None})
    alone, processes = engine.alone(run)
    study = alone.study.model_copy(update={"training": short})
    with TemporaryDirectory() as folder:
        trial = Run(run.choice, run.seed, RunFolder(Path(folder) / "run"), study)
        with closing(do_run(trial, engine, fresh=False)) as events:
            seconds = image_seconds(each for each in events if isinstance(each, RoundLine))
        return _Pace(seconds / processes, trial.folder.about().sites)


def image_seconds(lines: Iterable[RoundLine]) -> float:
    """Seconds for an image of a round at the faster of two sites.

    The first one pays for what is compiled and allocated once. What a method does once before the
    first round is not part of any.
    """
    trained = (line.seconds / line.images for line in lines if line.round and line.images)
    return min(islice(trained, 2), default=0.0)
