"""Packages on labelled cases: every metric of every case, means with intervals, differences."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from polyclinic.data.pictures import Picture, compared
from polyclinic.data.preparing import geometry_of
from polyclinic.data.tasks import Task
from polyclinic.evaluation import METRICS, Metric
from polyclinic.evaluation.intervals import bootstrap_interval
from polyclinic.evaluation.scoring import ScoreRow, all_metrics, best_median_worst, union
from polyclinic.masks import Mask
from polyclinic.predict.facts import ScoreFacts
from polyclinic.predict.labelled import LabelledCase, LabelledSite, labelled_site
from polyclinic.predict.model import Model
from polyclinic.predict.package import PackageError
from polyclinic.runs import Rank, csv_text

REGION_METRICS = tuple(name for name, metric in METRICS.items() if metric.of_what == "region")


class CaseScore(NamedTuple):
    """One metric of one region of one case by one model; the doubt is that of the note."""

    model: str
    site: str
    case: str
    patient: str
    region: str
    metric: str
    value: float
    doubt: float


class Shown(NamedTuple):
    """A model's best, median or worst case of a site, with its true and predicted contours."""

    model: str
    site: str
    rank: Rank
    case: str
    picture: Picture


@dataclass(frozen=True)
class Evaluation:
    """What came of it: all scores, and a few cases of each model and site as pictures."""

    models: tuple[str, ...]
    sites: tuple[str, ...]
    task: Task
    metrics: Mapping[str, Metric]
    scores: tuple[CaseScore, ...]
    shown: tuple[Shown, ...]

    def summary(self) -> list[tuple[str, ScoreFacts]]:
        """Each model's mean at each site of each region and metric, with its interval."""
        groups: dict[tuple[str, str, str, str], list[CaseScore]] = defaultdict(list)
        for row in self.scores:
            groups[row.model, row.site, row.region, row.metric].append(row)
        return [(model, self._facts(place, rows)) for (model, *place), rows in groups.items()]

    def matrix(self, metric: str) -> list[list[float]]:
        """The mean of a metric over cases and regions: a row for each model, a column a site."""
        return [
            [float(np.mean(self._values(model, site, metric))) for site in self.sites]
            for model in self.models
        ]

    def difference(self, model: str, site: str, metric: str) -> tuple[float, float, float]:
        """How much a model's mean is above the first model's, on the same cases: with interval.

        The interval is NaN where patients are too few for one.
        """
        patients = [r.patient for r in self._rows(self.models[0], site, metric)]
        first = np.array(self._values(self.models[0], site, metric))
        apart = np.array(self._values(model, site, metric)) - first
        return float(apart.mean()), *bootstrap_interval(apart.tolist(), patients)

    def to_csv(self) -> str:
        """All scores as a table."""
        return csv_text([CaseScore._fields, *self.scores])

    def _facts(self, place: Sequence[str], rows: Sequence[CaseScore]) -> ScoreFacts:
        values, patients = [row.value for row in rows], [row.patient for row in rows]
        return ScoreFacts.of(place, self.metrics[place[-1]], values, patients)

    def _rows(self, model: str, site: str, metric: str) -> list[CaseScore]:
        wanted = (model, site, metric)
        return [row for row in self.scores if (row.model, row.site, row.metric) == wanted]

    def _values(self, model: str, site: str, metric: str) -> list[float]:
        return [row.value for row in self._rows(model, site, metric)]


def evaluate(
    models: Mapping[str, Model],
    folders: Sequence[Path],
    *,
    metrics: Sequence[str] = REGION_METRICS,
    split: str | None = None,
    in_square: bool = False,
    on_case: Callable[[str], None] = lambda _: None,
) -> Evaluation:
    """Score packages of one task on the same labelled cases of one or several sites.

    Masks are compared in the size of the files or, `in_square`, in the task's square as runs do.
    """
    task = same_task(models)
    sites = [labelled_site(folder, task, split) for folder in folders]
    scores: list[CaseScore] = []
    for site in sites:
        regions = site.regions(task)
        for case in site.cases(task):
            for name, model in models.items():
                found = model.look(case.image)
                predicted, true, sizes = _sized(model, case, found.classes, in_square)
                about = (name, site.name, case.name, case.patient)
                scores += [
                    CaseScore(*about, region, metric, value, found.note.doubt)
                    for region, classes in regions.items()
                    for metric, value in all_metrics(
                        union(predicted, classes), union(true, classes), sizes, metrics
                    ).items()
                ]
            on_case(case.name)
    measured = [site.measured for site in sites]
    known = {name: replace(METRICS[name], unit=METRICS[name].unit_at(measured)) for name in metrics}
    shown = [each for site in sites for each in _shown(models, site, scores, task)]
    names = tuple(site.name for site in sites)
    return Evaluation(tuple(models), names, task, known, tuple(scores), tuple(shown))


def _shown(
    models: Mapping[str, Model], site: LabelledSite, scores: Sequence[CaseScore], task: Task
) -> Iterator[Shown]:
    """The pictures of a site: only when all is scored it is known which, so they are read again."""
    for name, model in models.items():
        of_site = [row for row in scores if (row.model, row.site) == (name, site.name)]
        rows = [ScoreRow(row.case, row.region, row.metric, row.value) for row in of_site]
        places = best_median_worst([case.name for case in site.chosen], rows)
        for rank, place in places.items():
            (case,) = replace(site, chosen=(site.chosen[place],)).cases(task)
            image = case.image[:3] if len(case.image) > 2 else case.image[:1]
            picture = compared(image, case.mask, model.classes(case.image), task)
            yield Shown(name, site.name, rank, case.name, picture)


def same_task(models: Mapping[str, Model]) -> Task:
    """The task of all models; a PackageError where they have several."""
    first = next(iter(models.values()))
    for name, model in models.items():
        if (model.task.name, model.task.classes) != (first.task.name, first.task.classes):
            raise PackageError(
                f"{name} is a model for the task {model.task.name}, the first one for "
                f"{first.task.name}: only models of one task can be compared"
            )
    return first.task


def _sized(
    model: Model, case: LabelledCase, classes: Mask, in_square: bool
) -> tuple[Mask, Mask, tuple[float, float]]:
    """The predicted and the true mask in one size, and the size of its pixels."""
    true = case.mask
    if case.view is not None:  # what was not seen is background, in truth and prediction
        classes, true = (np.where(case.view, each, np.uint8(0)) for each in (classes, true))
    if not in_square:
        return classes, true, case.spacing
    geometry = geometry_of(case.image, model.task)
    rows, columns = geometry.pixel
    predicted, _ = model.square(case.image)
    if case.view is not None:
        seen = geometry.mask_there(case.view.astype(np.uint8), 0)
        predicted = np.where(seen > 0, predicted, np.uint8(0))
    return (
        predicted,
        geometry.mask_there(true, 0),
        (case.spacing[0] * rows, case.spacing[1] * columns),
    )
