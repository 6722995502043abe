"""The report of model packages on labelled folders: the sections of a study's, filled from scores.

Every model stands where a study's report has a method.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from PIL import Image

from polyclinic.evaluation.intervals import NONE_FOR_FEW
from polyclinic.evaluation.scoring import numbered
from polyclinic.evaluation.statistics import summarise
from polyclinic.predict.evaluating import Evaluation, Shown
from polyclinic.predict.facts import PackageFacts, ScoreFacts
from polyclinic.report import words
from polyclinic.report.figures.shown import Shown as Figure
from polyclinic.report.figures.shown import case_figures
from polyclinic.report.measures import Measure
from polyclinic.report.page import by_section, rendered, scores_of, write_sheets, write_tables
from polyclinic.report.pictures import Example, SiteExamples, embedded, picture_width
from polyclinic.report.rankings import rankings
from polyclinic.report.reading import Comparison, MethodRuns, Run
from polyclinic.report.score_tables import comparison_table
from polyclinic.runs import (
    RANKS,
    About,
    AboutMetric,
    AboutTask,
    Finished,
    RunFolder,
    Score,
    SiteInfo,
    write_atomic,
)

Lines = list[tuple[str, str, dict[str, ScoreFacts]]]  # model, region, and its metrics


def write_evaluation(
    evaluation: Evaluation,
    to: Path,
    packages: Mapping[str, PackageFacts],
    *,
    in_square: bool = False,
) -> Path:
    """Write `scores.csv`, the tables and the page into a folder, and give the page's path."""
    write_atomic(to / "scores.csv", evaluation.to_csv())
    comparison = as_comparison(evaluation, packages, to)
    tables = [comparison_table(comparison, metric) for metric in comparison.metrics]
    orders = rankings(comparison, "model")
    write_tables(tables, to)
    write_sheets(orders, to)
    examples = _examples(evaluation, comparison)
    measures = [table.measure for table in tables]
    intervals = _intervals(evaluation)
    few = any(math.isnan(f.low) for s in intervals.values() for *_, m in s for f in m.values())
    titles = [about.title for about in packages.values()]
    context = {
        **scores_of(comparison, tables, orders),
        "title": words.enumeration(titles) if len(titles) < 3 else f"{len(titles)} models",
        "what": "model",
        "facts": _facts(evaluation, in_square=in_square),
        "packages": packages,
        "measures": measures,
        "intervals": intervals,
        "none_for_few": NONE_FOR_FEW if few else "",
        "differences": _differences(evaluation),
        "matrices": _matrices(evaluation, measures),
        "figures": by_section(_figures(comparison)),
        "examples": examples,
        "picture_width": picture_width(examples),
    }
    write_atomic(to / "evaluation.html", rendered("evaluation.html", context))
    return to / "evaluation.html"


def as_comparison(
    evaluation: Evaluation, packages: Mapping[str, PackageFacts], folder: Path
) -> Comparison:
    """The scores as those of methods, one for each model, of which all cases are test cases."""
    cases = {
        site: len({row.case for row in evaluation.scores if row.site == site})
        for site in evaluation.sites
    }
    sites = tuple(
        SiteInfo(name, index, "mask", 0, 0, cases[name])
        for index, name in enumerate(evaluation.sites)
    )
    methods = tuple(
        MethodRuns(name, (_run(evaluation, name, packages[name], sites, folder),))
        for name in evaluation.models
    )
    return Comparison(methods, sites, tuple(evaluation.task.regions))


def _run(
    evaluation: Evaluation,
    model: str,
    package: PackageFacts,
    sites: tuple[SiteInfo, ...],
    folder: Path,
) -> Run:
    member, task = package.members[0], evaluation.task
    told = ("title", "summary", "better", "unit")
    about = About(
        method=model,
        seed=member.seed,
        task=AboutTask(name=task.name, classes=task.classes, regions=dict(task.regions)),
        sites=sites,
        metrics={
            name: AboutMetric(**{key: getattr(metric, key) for key in told})
            for name, metric in evaluation.metrics.items()
        },
        network=member.network,
        parameters=sum(each.parameters for each in package.members),
        device="cpu",
        threads=0,
        started=package.made,
        versions=package.versions,
    )
    rows = [row for row in evaluation.scores if row.model == model]
    patients = numbered([f"{row.site}/{row.patient}" for row in rows])
    scores = tuple(
        Score(member.round, "test", row.site, row.case, row.region, row.metric, row.value, patient)
        for row, patient in zip(rows, patients, strict=True)
    )
    end = Finished(chosen_round=member.round, seconds=0.0)
    return Run(RunFolder(folder), about, {}, "", end, (), scores, (), (), summarise(scores))


def _facts(evaluation: Evaluation, *, in_square: bool) -> list[tuple[str, str]]:
    regions = words.enumeration(list(evaluation.task.regions))
    cases = {(row.site, row.case) for row in evaluation.scores}
    patients = {(row.site, row.patient) for row in evaluation.scores}
    return [
        ("Task", f"{evaluation.task.name}: {regions}"),
        ("Models", str(len(evaluation.models))),
        ("Sites", str(len(evaluation.sites))),
        ("Cases", words.count(len(cases))),
        ("Patients", words.count(len(patients))),
        ("Compared in", "the task's square" if in_square else "the size of the images"),
    ]


def _figures(comparison: Comparison) -> list[Figure]:
    """Every case as a point; none without matplotlib, which applying models does not need."""
    try:
        return list(case_figures(comparison))
    except ImportError:
        return []


def _intervals(evaluation: Evaluation) -> dict[str, Lines]:
    """Site → a line for each model and region."""
    found: dict[str, dict[tuple[str, str], dict[str, ScoreFacts]]] = {}
    for model, facts in evaluation.summary():
        of_site = found.setdefault(facts.site, {})
        of_site.setdefault((model, facts.region), {})[facts.metric] = facts
    return {site: [(*key, each) for key, each in lines.items()] for site, lines in found.items()}


def _differences(evaluation: Evaluation) -> dict[str, list[tuple[str, dict[str, Any]]]]:
    """Site → how far each model but the first is from the first, by metric."""
    return {
        site: [
            (model, {name: evaluation.difference(model, site, name) for name in evaluation.metrics})
            for model in evaluation.models[1:]
        ]
        for site in evaluation.sites
    }


def _matrices(
    evaluation: Evaluation, measures: list[Measure]
) -> list[tuple[Measure, list[tuple[str, list[float]]]]]:
    if len(evaluation.sites) < 2:
        return []
    return [
        (each, list(zip(evaluation.models, evaluation.matrix(each.name), strict=True)))
        for each in measures
    ]


def _examples(evaluation: Evaluation, comparison: Comparison) -> list[SiteExamples]:
    found = {(each.model, each.site, each.rank): each for each in evaluation.shown}
    return [
        SiteExamples(
            site,
            evaluation.models,
            tuple(
                (
                    rank,
                    tuple(
                        _example(evaluation, comparison, found[model, site, rank])
                        for model in evaluation.models
                    ),
                )
                for rank in RANKS
                if (evaluation.models[0], site, rank) in found
            ),
        )
        for site in evaluation.sites
    ]


def _example(evaluation: Evaluation, comparison: Comparison, shown: Shown) -> Example:
    how = comparison.measure(comparison.metrics[0])
    wanted = (shown.model, shown.site, shown.case, how.name)
    rows = [r for r in evaluation.scores if (r.model, r.site, r.case, r.metric) == wanted]
    caption = f"{how.title} {' / '.join(how.text(row.value) for row in rows)}"
    doubt = rows[0].doubt
    if doubt == doubt:  # a number: something is known that the case could be compared with
        caption += f" · doubt {doubt:.2f}"
    return Example(shown.case, caption, embedded(Image.fromarray(shown.picture)))
