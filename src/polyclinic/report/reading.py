"""Run folders as one comparison: methods with their seeds, over the same sites and regions."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyclinic.evaluation.statistics import Summary, summarise
from polyclinic.report.measures import Measure, measure
from polyclinic.runs import (
    About,
    Finished,
    RoundLine,
    RoundTable,
    RunError,
    RunFolder,
    Score,
    ScoredModel,
    SiteInfo,
    find_runs,
)


@dataclass(frozen=True)
class Run:
    """Everything that one run folder says, the pictures left where they are."""

    folder: RunFolder
    about: About
    settings: Mapping[str, Any]
    settings_text: str
    end: Finished | None
    rounds: tuple[RoundLine, ...]
    scores: tuple[Score, ...]
    trained: tuple[Score, ...]  # test scores of the models before the last average
    tables: tuple[RoundTable, ...]
    summaries: Mapping[str, Mapping[str, Summary]]  # test scores of a finished run: metric, region

    @property
    def study(self) -> str:
        """The name of the study that this run belongs to."""
        return str(self.settings.get("name") or self.folder.path.parent.parent.name)

    def as_trained(self) -> "Run":
        """The same run, tested with the models as its sites had trained them."""
        rows = tuple(row for row in self.scores if row.split != "test") + self.trained
        summaries = _summaries(self.folder, list(self.trained if self.end else ()))
        return replace(self, scores=rows, summaries=summaries)

    @property
    def planned_rounds(self) -> int | None:
        """How many rounds the settings ask for, where they say so."""
        planned = self.settings.get("federation", {}).get("rounds")
        return int(planned) if planned is not None else None

    @property
    def done_rounds(self) -> int:
        """The last round of which something was written."""
        return max((line.round for line in self.round_lines), default=0)

    @cached_property
    def round_lines(self) -> tuple[RoundLine, ...]:
        """The lines of the rounds themselves, without what came before and after them."""
        last = self.planned_rounds or math.inf
        return tuple(line for line in self.rounds if 1 <= line.round <= last)

    @cached_property
    def tested(self) -> Mapping[tuple[str, str, str], Mapping[str, float]]:
        """Test scores of a finished run: value by case, by (metric, region, site)."""
        found: dict[tuple[str, str, str], dict[str, float]] = {}
        for score in self.scores if self.end else ():
            if score.split == "test":
                cases = found.setdefault((score.metric, score.region, score.site), {})
                cases[score.case] = score.value
        return found

    @property
    def validation_metric(self) -> str | None:
        """The metric by which validation chose, or None where nothing was validated."""
        return next((score.metric for score in self.scores if score.split == "val"), None)

    @cached_property
    def validated(self) -> Mapping[str, Mapping[int, float]]:
        """Mean validation score over cases and regions, by site and round."""
        found: dict[str, dict[int, list[float]]] = {}
        metric = self.validation_metric
        for score in self.scores:
            if score.split == "val" and score.metric == metric:
                found.setdefault(score.site, {}).setdefault(score.round, []).append(score.value)
        return {
            site: {number: float(np.mean(values)) for number, values in rounds.items()}
            for site, rounds in found.items()
        }

    def case_values(self, metric: str, regions: Iterable[str], site: str) -> NDArray[np.float64]:
        """One number per test case of a site: its mean over the regions that it was scored in."""
        cases: dict[str, list[float]] = {}
        for region in regions:
            for case, value in self.tested.get((metric, region, site), {}).items():
                cases.setdefault(case, []).append(value)
        return np.array([np.mean(values) for values in cases.values()], dtype=np.float64)


@dataclass(frozen=True)
class MethodRuns:
    """The runs of one method, one per seed, under the name that tables and figures show.

    `model` is which of a site's models their test scores are of.
    """

    title: str
    runs: tuple[Run, ...]
    model: ScoredModel = "shared"
    note: str = ""

    @property
    def finished(self) -> tuple[Run, ...]:
        """The runs that have test scores."""
        return tuple(run for run in self.runs if run.end)

    @property
    def on_full_masks(self) -> bool:
        """Whether every site had full masks to train on."""
        return all(site.kind == "mask" for run in self.runs for site in run.about.sites)


@dataclass(frozen=True)
class Comparison:
    """Runs that can stand in one table: the same task, sites in the order of the first run."""

    methods: tuple[MethodRuns, ...]
    about_sites: tuple[SiteInfo, ...]
    regions: tuple[str, ...]

    @property
    def sites(self) -> tuple[str, ...]:
        """The names of the sites."""
        return tuple(site.name for site in self.about_sites)

    @property
    def runs(self) -> tuple[Run, ...]:
        """All runs, method by method."""
        return tuple(run for method in self.methods for run in method.runs)

    @property
    def ceilings(self) -> frozenset[str]:
        """Methods with full masks at every site, where two others or more had weak labels.

        They show what the same images could give, and rank with nobody.
        """
        full = frozenset(method.title for method in self.methods if method.on_full_masks)
        return full if len(self.methods) - len(full) > 1 else frozenset()

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics of the test scores, in the order of their first appearance."""
        found = {metric: None for run in self.runs for metric, _, _ in run.tested}
        return tuple(found)

    def measure(self, metric: str) -> Measure:
        """How a metric is printed."""
        return measure(metric, [run.about for run in self.runs])

    @property
    def studies(self) -> tuple[str, ...]:
        """The names of the studies that the runs belong to."""
        return tuple(dict.fromkeys(run.study for run in self.runs))


def read_runs(paths: Iterable[str | Path]) -> Comparison:
    """Read run or study folders; all folders that are broken are named in one error."""
    runs, mistakes = [], []
    for path in find_runs(paths):
        try:
            runs.append(_read(RunFolder(path)))
        except RunError as error:
            mistakes.append(str(error))
    if mistakes:
        raise RunError("\n".join(mistakes))
    _refuse_different_tasks(runs)
    return Comparison(
        methods=_by_method(runs),
        about_sites=_sites(runs),
        regions=tuple(runs[0].about.task.regions),
    )


def _read(folder: RunFolder) -> Run:
    end, scores = folder.end(), folder.scores()
    return Run(
        folder=folder,
        about=folder.about(),
        settings=folder.settings(),
        settings_text=folder.settings_text(),
        end=end,
        rounds=tuple(folder.rounds()),
        scores=tuple(scores),
        trained=tuple(folder.scores("test", "trained")),
        tables=tuple(folder.tables()),
        summaries=_summaries(folder, [row for row in scores if end and row.split == "test"]),
    )


def _sites(runs: list[Run]) -> tuple[SiteInfo, ...]:
    found: dict[str, SiteInfo] = {}
    for run in runs:
        for site in run.about.sites:
            found.setdefault(site.name, site)
    return tuple(found.values())


def _summaries(folder: RunFolder, rows: list[Score]) -> Mapping[str, Mapping[str, Summary]]:
    try:
        return summarise(rows)
    except ValueError as error:
        raise RunError(f"{folder.path / 'scores.csv'}: {error}") from error


def _refuse_different_tasks(runs: list[Run]) -> None:
    first = runs[0]
    others = [
        f"{run.folder.path} ({run.about.task.name})"
        for run in runs
        if (run.about.task.name, run.about.task.regions)
        != (first.about.task.name, first.about.task.regions)
    ]
    if others:
        raise RunError(
            f"only runs of one task can be compared: {first.folder.path} is about "
            f"{first.about.task.name}, but not {', '.join(others)}"
        )


def _by_method(runs: list[Run]) -> tuple[MethodRuns, ...]:
    """Runs of the same study and title differ in their seed; a title of two studies names both."""
    groups: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        groups.setdefault((run.about.method, run.study), []).append(run)
    titles = [title for title, _ in groups]
    methods = []
    for (title, study), group in groups.items():
        _refuse_equal_seeds(title, group)
        name = title if titles.count(title) == 1 else f"{title} ({study})"
        methods.append(
            MethodRuns(
                name, tuple(sorted(group, key=lambda run: (run.about.seed, run.about.fold or 0)))
            )
        )
    return tuple(methods)


def _refuse_equal_seeds(title: str, runs: list[Run]) -> None:
    by_seed: dict[tuple[int, int | None], Run] = {}
    for run in runs:
        other = by_seed.setdefault((run.about.seed, run.about.fold), run)
        if other is not run:
            raise RunError(
                f"{other.folder.path} and {run.folder.path} are both {title} with seed "
                f"{run.about.seed}; leave one out"
            )
