"""Every site's model on every site's test cases, where all sites are on one machine."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from dataclasses import replace
from statistics import fmean

from polyclinic.data.cases import SiteData
from polyclinic.engine.site_runner import SiteRunner
from polyclinic.engine.states import read_state
from polyclinic.evaluation.scoring import ScoreRow
from polyclinic.federation.scoring import score
from polyclinic.runs import RoundTable, RunFolder

FILE = "cross_site.csv"
FIELDS = ("model", "site", *ScoreRow._fields)


def write_cross_site(run: RunFolder, runner: SiteRunner, data: Mapping[str, SiteData]) -> None:
    """Write all scores as a table, and the first metric's means as a matrix for the report.

    The models are those that the run folder keeps.
    A model predicts another site's images with its own site's weights, statistics included.
    """
    assignment = runner.assignment
    metrics = assignment.metrics
    rows = []
    for owner in assignment.sites:
        state, _ = read_state(run.weights_path(owner.name))
        model = runner.opened(owner, data[owner.name], state)
        for info in assignment.sites:
            there = data[info.name]
            cases = there.scorable("test", assignment.task.regions)
            guest = replace(model, data=replace(model.data, mask_groups=there.mask_groups))
            found, _ = score(assignment.method, guest, cases, list(metrics), metrics)
            rows += [(owner.name, info.name, *row) for row in found]
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([FIELDS, *rows])
    run.write_atomic(FILE, text.getvalue())
    first, names = next(iter(metrics)), tuple(info.name for info in assignment.sites)
    means = {
        (model, site): fmean(row[5] for row in rows if row[:2] == (model, site) and row[4] == first)
        for model in names
        for site in names
        if any(row[:2] == (model, site) for row in rows)
    }
    table = RoundTable(
        round=assignment.rounds + 1,
        name=f"{metrics[first].title} of each site's model (row) at each site (column)",
        rows=names,
        columns=names,
        values=tuple(
            tuple(means.get((model, site), float("nan")) for site in names) for model in names
        ),
    )
    run.append(tables=[table])
