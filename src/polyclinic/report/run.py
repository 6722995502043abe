"""One run folder as the report reads it."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyclinic.evaluation.statistics import Summary, summarise
from polyclinic.runs import About, Finished, RoundLine, RoundTable, RunError, RunFolder, Score


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
        summaries = summed_up(self.folder, self.trained if self.end else ())
        return replace(self, scores=rows, summaries=summaries)

    @property
    def fold(self) -> int:
        """Which fold the test cases are, where the study has folds; else 0."""
        return self.about.fold or 0

    @cached_property
    def patients(self) -> Mapping[str, Mapping[str, int]]:
        """The numbers of the test cases' patients, by site and case; 0 where unknown."""
        found: dict[str, dict[str, int]] = {}
        for score in self.scores if self.end else ():
            if score.split == "test":
                found.setdefault(score.site, {})[score.case] = score.patient
        return found

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
    def count_of_rounds(self) -> int:
        """How many rounds there is something of."""
        return len({line.round for line in self.round_lines})

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
        metric = self.validation_metric
        sites = (site for name, split, site in self._by_round if (name, split) == (metric, "val"))
        return {site: self.curve(metric or "", "val", site) for site in sites}

    def curve(self, metric: str, split: str, site: str) -> dict[int, float]:
        """The mean over cases and regions of a site after each round that was scored."""
        found = self._by_round.get((metric, split, site), {})
        return {number: float(np.mean(values)) for number, values in found.items()}

    @cached_property
    def _by_round(self) -> dict[tuple[str, str, str], dict[int, list[float]]]:
        found: dict[tuple[str, str, str], dict[int, list[float]]] = {}
        for score in self.scores:
            rounds = found.setdefault((score.metric, score.split, score.site), {})
            rounds.setdefault(score.round, []).append(score.value)
        return found

    @cached_property
    def curves(self) -> tuple[tuple[str, str], ...]:
        """The metrics and splits that were scored round by round, in the order of first sight."""
        pairs = ((score.metric, score.split) for score in self.scores if score.split != "test")
        return tuple(dict.fromkeys(pairs))

    def case_values(self, metric: str, regions: Iterable[str], site: str) -> NDArray[np.float64]:
        """One number per test case of a site: its mean over the regions that it was scored in."""
        cases: dict[str, list[float]] = {}
        for region in regions:
            for case, value in self.tested.get((metric, region, site), {}).items():
                cases.setdefault(case, []).append(value)
        return np.array([np.mean(values) for values in cases.values()], dtype=np.float64)


def summed_up(folder: RunFolder, rows: Iterable[Score]) -> Mapping[str, Mapping[str, Summary]]:
    """What test scores say together; an error names their file."""
    try:
        return summarise(rows)
    except ValueError as error:
        raise RunError(f"{folder.path / 'scores.csv'}: {error}") from error
