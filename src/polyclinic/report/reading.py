"""Run folders as one comparison: methods with their seeds, over the same sites and regions."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from polyclinic.report.measures import Measure, measure
from polyclinic.report.run import Run, summed_up
from polyclinic.runs import RunError, RunFolder, ScoredModel, SiteInfo, find_runs

SHOWN_SITES = 30
_PICTURES = 200  # of one case each of sites and methods, side by side

__all__ = ["Comparison", "MethodRuns", "Run", "read_runs"]


@dataclass(frozen=True)
class MethodRuns:
    """The runs of one method, one per seed and fold, under the name that tables and figures show.

    `model` is which of a site's models their test scores are of. Runs without a site that took part
    in others are `left_out`: only tables of unseen sites show them.
    """

    title: str
    runs: tuple[Run, ...]
    model: ScoredModel = "shared"
    note: str = ""
    left_out: tuple[Run, ...] = ()

    @property
    def finished(self) -> tuple[Run, ...]:
        """The runs that have test scores."""
        return tuple(run for run in self.runs if run.end)

    @property
    def folds(self) -> dict[int, list[Run]]:
        """The finished runs of each fold."""
        found: dict[int, list[Run]] = {}
        for run in self.finished:
            found.setdefault(run.fold, []).append(run)
        return found

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
    def shown_sites(self) -> tuple[str, ...]:
        """The sites that a page shows one by one; files and means hold all."""
        return self.sites[:SHOWN_SITES]

    @property
    def pictured_sites(self) -> tuple[str, ...]:
        """Those of them whose cases a page shows: fewer where there are many methods."""
        return self.shown_sites[: max(1, _PICTURES // max(1, len(self.methods)))]

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
        """The metrics of the test scores, in the order that the first study wants them in."""
        found = {metric: None for run in self.runs for metric, _, _ in run.tested}
        wanted = self.runs[0].settings.get("evaluation", {}).get("metrics", ()) if found else ()
        return tuple(dict.fromkeys(each for each in (*wanted, *found) if each in found))

    def regions_of(self, metric: str) -> tuple[str, ...]:
        """The regions that a metric was computed for; one over classes has its own."""
        found = {
            region: None for run in self.runs for name, region, _ in run.tested if name == metric
        }
        return tuple(dict.fromkeys(each for each in (*self.regions, *found) if each in found))

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
        summaries=summed_up(folder, [row for row in scores if end and row.split == "test"]),
    )


def _sites(runs: list[Run]) -> tuple[SiteInfo, ...]:
    found: dict[str, SiteInfo] = {}
    for run in runs:
        for site in run.about.sites:
            found.setdefault(site.name, site)
    return tuple(found.values())


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
    for (title, study), every in groups.items():
        whole = [run for run in every if run.about.left_out is None]
        group = whole or every
        _refuse_equal_seeds(title, group)
        name = title if titles.count(title) == 1 else f"{title} ({study})"
        runs = sorted(group, key=lambda run: (run.fold, run.about.seed))
        left_out = [run for run in every if run not in group]
        methods.append(MethodRuns(name, tuple(runs), left_out=tuple(left_out)))
    return tuple(methods)


def _refuse_equal_seeds(title: str, runs: Sequence[Run]) -> None:
    by_seed: dict[tuple[int, int], Run] = {}
    for run in runs:
        other = by_seed.setdefault((run.about.seed, run.fold), run)
        if other is not run:
            raise RunError(
                f"{other.folder.path} and {run.folder.path} are both {title} with seed "
                f"{run.about.seed}; leave one out"
            )
