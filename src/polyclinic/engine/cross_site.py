"""Every site's model on every site's test cases: all on one machine, or those that disclose."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from torch import Tensor

from polyclinic.data.cases import Cases, SiteData
from polyclinic.data.errors import listed
from polyclinic.engine.pictures import draw_guest
from polyclinic.engine.run import Assignment
from polyclinic.engine.site_runner import SiteRunner
from polyclinic.engine.states import SiteState, read_state
from polyclinic.evaluation.scoring import ScoreRow
from polyclinic.federation.scoring import score
from polyclinic.runs import (
    GuestScore,
    RoundLine,
    RoundTable,
    RunFolder,
    SiteInfo,
    write_guests,
)


def write_cross_site(
    run: RunFolder, runner: SiteRunner, data: Mapping[str, SiteData], *, pictures: bool
) -> None:
    """Score the models that the run folder keeps at every site, and write what came of it.

    A model predicts another site's images with its own site's weights, statistics included. With
    pictures one case of each site is drawn as every model sees it.
    """
    assignment = runner.assignment
    metrics = assignment.metrics
    rows: list[GuestScore] = []
    for owner in assignment.sites:
        state, _ = read_state(run.weights_path(owner.name))
        model = runner.opened(owner, data[owner.name], state)
        for info in assignment.sites:
            there = data[info.name]
            cases = there.scorable("test", assignment.task.regions)
            guest = replace(model, data=replace(model.data, mask_groups=there.mask_groups))
            found, predicted = score(assignment.method, guest, cases, list(metrics), metrics)
            if pictures and len(cases):
                draw_guest(run, owner.name, info.name, assignment.task, cases, predicted)
            rows += [GuestScore(owner.name, info.name, *row) for row in found]
    write_matrix(run, assignment, rows)


def guest_scores(
    runner: SiteRunner,
    info: SiteInfo,
    data: SiteData,
    state: SiteState | None,
    model: Mapping[str, Tensor],
) -> tuple[list[ScoreRow], Cases]:
    """Rows of another site's model, which is all that it predicts with, on this site's test cases.

    A ValueError says what the model lacks, or has too much.
    """
    method, metrics = runner.assignment.method, runner.assignment.metrics
    wanted = {n: runner.weights[n].shape for n in method.predicts_with(runner.net)}
    given = {name: tensor.shape for name, tensor in model.items()}
    if given != wanted:
        names = sorted(n for n in {*given, *wanted} if given.get(n) != wanted.get(n))
        raise ValueError(f"this is no model of the study: it differs in {listed(names, most=3)}")
    site = runner.opened(info, data, state)
    cases = data.scorable("test", runner.assignment.task.regions)
    return score(method, site, cases, list(metrics), metrics, model)[0], cases


def write_matrix(
    run: RunFolder,
    assignment: Assignment,
    rows: Sequence[GuestScore],
    lines: Sequence[RoundLine] = (),
) -> None:
    """Write all scores as a table, and the first metric's means as a matrix for the report.

    Lines say what it took; a pair without scores has none in the matrix.
    """
    metrics = assignment.metrics
    write_guests(run, rows)
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
        final=True,
        rows=names,
        columns=names,
        values=tuple(
            tuple(means.get((model, site), float("nan")) for site in names) for model in names
        ),
    )
    run.append(lines, tables=[table])
