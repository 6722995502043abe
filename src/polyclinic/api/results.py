"""The results of runs as Python objects; everything is read from the run folders."""

import math
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from polyclinic.api.given import Given
from polyclinic.api.shown import CurveRow, Curves, ScoreTable, framed
from polyclinic.catalog import installed
from polyclinic.config import Tables
from polyclinic.config.mistakes import did_you_mean
from polyclinic.evaluation.statistics import OVERALL
from polyclinic.report import write_report
from polyclinic.report.reading import Comparison, Run, read_runs
from polyclinic.report.score_tables import comparison_table
from polyclinic.runs import RunError, find_runs

if TYPE_CHECKING:
    from polyclinic.api.model import Model


class ScoreRow(NamedTuple):
    """One metric of one region of one case, by the final model of its site.

    `model` is `trained` where it is the model as the site trained it, before the last average.
    """

    method: str
    seed: int
    site: str
    case: str
    region: str
    metric: str
    value: float
    model: str = "shared"


class Results:
    """What runs of one task have brought: scores, tables, curves, a report and models.

    Shows itself in a notebook, and printed, as the table of its first metric.
    """

    def __init__(self, paths: Sequence[Path], tables: Tables) -> None:
        self.paths = list(paths)
        """The folders of the runs."""
        self._tables = tables

    @property
    def methods(self) -> list[str]:
        """The methods by their titles."""
        return [method.title for method in self._comparison.methods]

    @property
    def sites(self) -> list[str]:
        """The names of the sites."""
        return list(self._comparison.sites)

    @property
    def seeds(self) -> list[int]:
        """The seeds of all runs, each once."""
        return sorted({run.about.seed for run in self._comparison.runs})

    @property
    def metrics(self) -> list[str]:
        """The metrics of the test scores."""
        return list(self._comparison.metrics)

    def rows(self) -> list[ScoreRow]:
        """All test scores of finished runs: a row for each case, region and metric."""
        return [
            ScoreRow(method.title, run.about.seed, site, case, region, metric, value, model)
            for method in self._comparison.methods
            for run in method.finished
            for model, tested in (("shared", run), ("trained", run.as_trained()))
            for (metric, region, site), cases in tested.tested.items()
            for case, value in cases.items()
        ]

    def scores(self) -> Any:
        """All test scores as a pandas DataFrame; where pandas is not installed, as `rows()`."""
        return framed(self.rows(), ScoreRow)

    def table(self, metric: str | None = None) -> ScoreTable:
        """Methods by sites: means of one metric, by default the first, for each region."""
        chosen = self._metric(metric)
        return ScoreTable(comparison_table(self._comparison, chosen))

    def curves(self) -> Curves:
        """Validation score and training loss of every site, round by round."""
        return Curves(self._comparison, tuple(self._curve_rows()))

    def report(self, to: str | Path | None = None) -> Path:
        """Write the page that compares the runs, with its tables, and give its path.

        `to` is a folder or the page itself; by default the page stands in the study's folder.
        """
        return write_report(self.paths, to or self.paths[0].parents[1])

    def model(
        self, method: str | None = None, site: str | None = None, seed: int | None = None
    ) -> "Model":
        """The final model of a method at a site; what there is only one of need not be said."""
        from polyclinic.api.model import model_of

        titles = {each.title: each for each in self._comparison.methods}
        chosen = titles[_one("method", method, list(titles))]
        by_seed = {run.about.seed: run for run in chosen.runs}
        run = by_seed[_one("seed", seed, list(by_seed))]
        place = _one("site", site, [info.name for info in run.about.sites])
        return model_of(run.folder, place, self._tables)

    def __str__(self) -> str:
        return str(self._overview) if self.metrics else repr(self)

    def __repr__(self) -> str:
        done = sum(run.end is not None for run in self._comparison.runs)
        methods = ", ".join(self.methods)
        return f"<Results: {methods}; runs: {len(self.paths)}, finished: {done}>"

    def _repr_html_(self) -> str | None:
        return self._overview._repr_html_() if self.metrics else None

    @cached_property
    def _comparison(self) -> Comparison:
        return read_runs(self.paths)

    @property
    def _overview(self) -> ScoreTable:
        return ScoreTable(comparison_table(self._comparison, self.metrics[0], [OVERALL]))

    def _metric(self, name: str | None) -> str:
        if not self.metrics:
            raise RunError("no run is finished, so there are no test scores yet")
        return _one("metric", self.metrics[0] if name is None else name, self.metrics)

    def _curve_rows(self) -> Iterator[CurveRow]:
        for method in self._comparison.methods:
            for run in method.runs:
                yield from _curve(method.title, run)


def load_run(*paths: str | Path, code: Sequence[Any] = ()) -> Results:
    """The results in folders of runs or of whole studies, also of studies still under way.

    Models of a method or network that was defined in a notebook need its class again: in `code`.
    """
    return Results(find_runs(paths), Given(installed(), code).tables)


def _curve(title: str, run: Run) -> Iterator[CurveRow]:
    losses = {(line.site, line.round): line.loss for line in run.round_lines if not line.missed}
    scores = {
        (site, number): value
        for site, rounds in run.validated.items()
        for number, value in rounds.items()
    }
    for site, number in sorted({*losses, *scores}, key=lambda place: (place[1], place[0])):
        place = site, number
        loss, score = losses.get(place, math.nan), scores.get(place, math.nan)
        yield CurveRow(title, run.about.seed, site, number, loss, score)


def _one(what: str, wanted: Any, known: Sequence[Any]) -> Any:
    """What is wanted, if it is known; the only one where nothing is said."""
    if wanted is None and len(known) == 1:
        return known[0]
    if wanted in known:
        return wanted
    there = f"there are {', '.join(map(str, known))}"
    if wanted is None:
        raise ValueError(f"say which {what}: {there}")
    hint = did_you_mean(wanted, map(str, known))
    raise ValueError(f"there is no {what} {wanted!r} in these runs; {there}{hint}")
