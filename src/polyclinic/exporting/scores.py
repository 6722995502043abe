"""The test scores that a package tells: those of the run or, of a new model, computed at export."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import torch

from polyclinic.data.cases import SiteData
from polyclinic.evaluation.intervals import bootstrap_interval
from polyclinic.evaluation.scoring import ScoreRow, score_cases
from polyclinic.exporting.choosing import SERVER, Origin
from polyclinic.exporting.trained import in_use, same_everywhere
from polyclinic.federation.scoring import predictions
from polyclinic.networks.contract import likeliest
from polyclinic.predict.facts import ScoreFacts


def scores_of(origins: Sequence[Origin], data: Mapping[str, SiteData]) -> Iterator[ScoreFacts]:
    """The test scores of the models that these make, site by site.

    A run scores each site's own model. An ensemble, or a server's model that no site uses as it
    is, is scored here, on the test cases that lie here; it has no scores where none do.
    """
    origin = origins[0]
    if len(origins) > 1 or (origin.owner == SERVER and not same_everywhere(origin)):
        for name, site in data.items():
            yield from _told(origin, name, _computed(origins, site), site)
        return
    rows: dict[str, list[ScoreRow]] = defaultdict(list)
    for row in origin.run.folder.scores("test"):
        rows[row.site].append(ScoreRow(row.case, row.region, row.metric, row.value))
    for name, found in rows.items():
        yield from _told(origin, name, found, data.get(name))


def _computed(origins: Sequence[Origin], there: SiteData) -> list[ScoreRow]:
    """Rows of the mean of all models' probabilities on a site's test cases."""
    study = origins[0].run.study
    regions = study.task.built.regions
    cases = there.scorable("test", regions)
    if not len(cases):
        return []
    total = torch.zeros(())
    for origin in origins:
        with in_use(origin) as (method, site):
            found = torch.cat([batch.cpu() for batch in predictions(method, site, cases)])
        total = total + found / len(origins)
    metrics = {metric.name: metric.built for metric in study.metric}
    true, spacing = cases.masks.cpu().numpy(), cases.spacing.numpy()
    known = there.known(regions)
    predicted = likeliest(total).numpy()
    return score_cases(predicted, true, cases.names, known, spacing, list(metrics), metrics)


def _told(
    origin: Origin, site: str, rows: Iterable[ScoreRow], data: SiteData | None
) -> Iterator[ScoreFacts]:
    """Means of a site's rows with intervals; without its cases, each is taken for a patient."""
    metrics = origin.run.folder.about().metrics
    patients = dict(zip(data.test.names, data.test.patients, strict=True)) if data else {}
    groups: dict[tuple[str, str], list[ScoreRow]] = defaultdict(list)
    for row in rows:
        groups[row.region, row.metric].append(row)
    for (region, metric), found in groups.items():
        drawn = [patients.get(row.case, row.case) for row in found]
        values = [row.value for row in found]
        low, high = bootstrap_interval(values, drawn)
        better = metrics[metric].better
        yield ScoreFacts(
            site=site,
            region=region,
            metric=metric,
            title=metrics[metric].title,
            unit=metrics[metric].unit,
            better=better,
            mean=float(np.mean(values)),
            low=low,
            high=high,
            worst_tenth=float(np.quantile(values, 0.1 if better == "higher" else 0.9)),
            cases=len(found),
            patients=len(set(drawn)),
        )
