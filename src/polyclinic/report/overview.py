"""What was run, in what state it is, who came first, and which settings the runs do not share."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from polyclinic.report.folds import folds_of, seeds_and_folds
from polyclinic.report.reading import Comparison, MethodRuns, Run
from polyclinic.report.score_tables import Table, missing_seeds
from polyclinic.report.settings import OF_A_RUN, differing, flat
from polyclinic.report.words import amount, count, duration, enumeration


@dataclass(frozen=True)
class Winner:
    """The methods with the best average over sites in one metric."""

    metric: str
    arrow: str
    titles: str
    value: str


@dataclass(frozen=True)
class MethodLine:
    """The state of a method's runs, in words."""

    title: str
    seeds: str
    state: str
    complete: bool
    chosen: str
    time: str
    empty: str


def facts(comparison: Comparison) -> list[tuple[str, str]]:
    """The things that all runs have in common, as pairs of name and words."""
    abouts = [run.about for run in comparison.runs]
    planned = sorted({run.planned_rounds for run in comparison.runs if run.planned_rounds})
    seeds = sorted({about.seed for about in abouts})
    folds = enumeration(list(map(str, folds_of(comparison.runs))))
    devices = (f"{about.device}, {amount(about.threads, 'thread')}" for about in abouts)
    networks = dict.fromkeys(
        f"{about.network}, {count(about.parameters)} parameters" for about in abouts
    )
    return [
        ("Task", f"{abouts[0].task.name}: {enumeration(list(comparison.regions))}"),
        ("Sites", str(len(comparison.sites))),
        ("Methods", str(len(comparison.methods))),
        ("Seeds", enumeration([str(seed) for seed in seeds])),
        *([("Folds", folds)] if folds else []),
        ("Rounds", " or ".join(map(str, planned)) or "not stated"),
        ("Network", "; ".join(networks)),
        ("Device", "; ".join(dict.fromkeys(devices))),
        ("Started", min(about.started for about in abouts).replace("T", " ")[:16]),
    ]


def winners(tables: Iterable[Table]) -> list[Winner]:
    """Who leads in each metric, where two methods or more can be compared."""
    found = []
    for table in tables:
        place = max(index for index, column in enumerate(table.columns) if column.kind == "average")
        best = [row for row in table.rows if row.cells[place].mark == "best"]
        if best:
            how, value = table.measure, best[0].cells[place].value
            titles = enumeration([row.title for row in best])
            unit = f" {how.unit}" if how.unit else ""
            found.append(Winner(how.title, how.arrow, titles, how.text(value) + unit))
    return found


def method_lines(comparison: Comparison) -> list[MethodLine]:
    """One line per method: seeds and folds, how far it came, the chosen rounds, the time."""
    return [_line(method) for method in comparison.methods]


def choice_sentence(comparison: Comparison) -> str:
    """How the scored weights were chosen."""
    ways = {
        str(run.settings.get("evaluation", {}).get("choose", "best")) for run in comparison.runs
    }
    if ways == {"last"}:
        how = "The weights of the last round are scored"
    elif ways == {"best"}:
        how = "The weights of the round with the best validation score are scored"
    else:
        how = "The weights of the chosen round (best by validation, or last) are scored"
    return f"{how}, once, on the test cases. Test cases never choose a model."


def partial_sentence(comparison: Comparison) -> str:
    """Which sites do not annotate all classes, and what that means for scores; else nothing."""
    partly = [site.name for site in comparison.about_sites if site.annotates]
    if not partly:
        return ""
    verb = "does" if len(partly) == 1 else "do"
    return (
        f"{enumeration(partly)} {verb} not annotate all classes: training treats what is not told "
        "apart there as one class, and scores count only regions that its masks show, so averages "
        "are over fewer sites for some regions."
    )


def means_sentence(comparison: Comparison) -> str:
    """Which sites gave only means over their cases, and what of it; else nothing."""
    only = {
        site
        for run in comparison.runs
        for (_, _, site), cases in run.tested.items()
        if list(cases) == ["test mean"]
    }
    if not only:
        return ""
    return (
        f"{enumeration(sorted(only))} gave only means over test cases, so each counts as one case "
        "there: ± says nothing, and there is no ranking. Spreads over the cases, as these sites "
        "told them, are among the diagnostics."
    )


def empty_masks(runs: Iterable[Run]) -> tuple[int, int] | None:
    """How many scores were decided by one mask being empty, of how many; None if unknowable.

    Only then has a case no overlap and one and the same value for different distances.
    """
    found = total = 0
    for run in runs:
        for (metric, region, site), cases in run.tested.items():
            largest = run.tested.get(("hd", region, site))
            mean = run.tested.get(("assd", region, site))
            if metric != "dice" or largest is None or mean is None:
                continue
            total += len(cases)
            found += sum(
                value == 0 and largest.get(case, math.nan) == mean.get(case)
                for case, value in cases.items()
            )
    return (found, total) if total else None


def _line(method: MethodRuns) -> MethodLine:
    chosen = dict.fromkeys(str(run.end.chosen_round) for run in method.runs if run.end)
    times = [run.end.seconds for run in method.runs if run.end]
    empty = empty_masks(method.runs)
    return MethodLine(
        title=method.title,
        seeds=seeds_and_folds(method.runs),
        state=_state(method),
        complete=not missing_seeds(method),
        chosen=enumeration(list(chosen)) if chosen else "–",
        time=duration(float(np.mean(times))) if times else "–",
        empty=f"{empty[0]} of {count(empty[1])}" if empty else "–",
    )


def _state(method: MethodRuns) -> str:
    unfinished = [run for run in method.runs if not run.end]
    if not unfinished:
        return "finished"
    stops = [f"round {run.done_rounds} of {run.planned_rounds or '?'}" for run in unfinished]
    if len(method.runs) == 1:
        return f"unfinished: {stops[0]}"
    named = [f"{_place(run)} at {stop}" for run, stop in zip(unfinished, stops, strict=True)]
    return f"unfinished: {enumeration(named)}"


def _place(run: Run) -> str:
    fold = "" if run.about.fold is None else f" fold {run.about.fold}"
    return f"seed {run.about.seed}{fold}"


def same_settings(method: MethodRuns) -> list[tuple[Run, ...]]:
    """The runs of a method in groups that differ in nothing but their seed and fold."""
    groups: list[list[Run]] = []
    for run in method.runs:
        for group in groups:
            if not differing([dict(flat(each.settings)) for each in (group[0], run)], OF_A_RUN):
                group.append(run)
                break
        else:
            groups.append([run])
    return [tuple(group) for group in groups]


def warnings(comparison: Comparison) -> Iterator[str]:
    """Where the runs are not as alike as a comparison needs them to be."""
    for method in comparison.methods:
        found = differing([dict(flat(run.settings)) for run in method.runs], OF_A_RUN)
        if found:
            yield f"The runs of {method.title} differ in {', '.join(found)}."
    firsts = [dict(flat(method.runs[0].settings)) for method in comparison.methods]
    found = differing(firsts, {*OF_A_RUN, "name", "method"})
    if found:
        yield f"The methods were run with different {', '.join(found)}."
