"""What was done, in the words of a paper's methods section, from the resolved settings."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from polyclinic.report.chance import means_only, ranked
from polyclinic.report.folds import folds_sentence
from polyclinic.report.patients import all_known
from polyclinic.report.reading import Comparison
from polyclinic.report.references import METHODS
from polyclinic.report.settings import of_method
from polyclinic.report.words import amount, count, enumeration


def methods_paragraph(comparison: Comparison) -> str:
    """Sentences about data, network, training, federation, scoring and statistics.

    They tell what the first method was run with; where methods differ, the report warns of it.
    """
    return " ".join(_sentences(comparison))


def used(comparison: Comparison) -> tuple[list[str], list[str]]:
    """The names of the methods, with their finishing steps, and of the networks."""
    found: dict[str, None] = {}
    for method in comparison.methods:
        own = of_method(method)
        steps = str(own.get("method.then", "")).split(" + ")
        found.update(dict.fromkeys(filter(None, [str(own.get("method.name", "")), *steps])))
    return list(found), list(dict.fromkeys(run.about.network for run in comparison.runs))


def _sentences(comparison: Comparison) -> Iterator[str]:
    about = comparison.runs[0].about
    train, val, test = (
        sum(getattr(site, split) for site in comparison.about_sites)
        for split in ("train", "val", "test")
    )
    kinds = dict.fromkeys(site.kind for site in comparison.about_sites)
    trained = "full masks" if list(kinds) == ["mask"] else f"labels ({', '.join(kinds)})"
    yield (
        f"We segmented {enumeration(list(comparison.regions))} (task {about.task.name}) with "
        f"{amount(len(comparison.sites), 'site')}, {count(train)} training, {count(val)} "
        f"validation and {count(test)} test images in all, patients being in one split "
        f"only; sites trained on {trained}."
    )
    if folds := folds_sentence(comparison):
        yield folds
    yield from _training(comparison)
    yield from _statistics(comparison)
    yield f"All was run with Polyclinic {about.versions.get('polyclinic', '')}.".replace(" .", ".")


def _training(comparison: Comparison) -> Iterator[str]:
    about, settings = comparison.runs[0].about, of_method(comparison.methods[0])
    side = settings.get("task.resolution")
    yield (
        f"The network was {about.network} with {count(about.parameters)} parameters"
        + (f" on images of {side} × {side} pixels." if side else ".")
    )
    known = [f"{m.title}{_cited(m.title, comparison)}" for m in comparison.methods]
    yield f"We {'compared' if len(known) > 1 else 'ran'} {enumeration(known)}."
    rounds = settings.get("federation.rounds")
    optimizer, rate = settings.get("training.optimizer"), settings.get("training.learning_rate")
    batch, seeds = settings.get("training.batch"), {run.about.seed for run in comparison.runs}
    if rounds:
        yield (
            f"Each was trained for {amount(int(rounds), 'round')}{_work(settings)} at every site "
            f"with {optimizer} (learning rate {rate}, batches of {batch}), with "
            f"{amount(len(seeds), 'seed')}."
        )
    choice = settings.get("evaluation.choose")
    which = (
        "of the last round" if choice == "last" else "of the round with the best validation Dice"
    )
    yield f"The model {which} was scored once on the test cases."


def _work(settings: Mapping[str, Any]) -> str:
    """How long a site trains in a round."""
    for unit in ("iteration", "epoch"):
        number = settings.get(f"training.{unit}s")
        if isinstance(number, int):
            return f" of {amount(number, unit)}"
    return ""


def _statistics(comparison: Comparison) -> Iterator[str]:
    """Which intervals and tests there are; nothing of one method alone."""
    if means := means_only(comparison):
        yield f"{enumeration(means)} gave means only, so that there are no intervals and no tests."
    orders = (ranked(comparison, metric) for metric in comparison.metrics)
    order = next(filter(None, orders), None)
    if order is None:
        return
    whose = "patients" if all_known(comparison) else "cases"
    few = any(math.isnan(each.low) for each in order)
    first = f"There were too few {whose} for intervals"
    yield (
        (first if few else f"Intervals are bootstrap intervals over {whose} within sites")
        + f"; methods were compared with the best one by sign flips of {whose}' paired differences"
        + (", and by signed ranks of sites' means" if order[-1].over_sites is not None else "")
        + ", corrected by Holm."
    )


def _cited(title: str, comparison: Comparison) -> str:
    method = next(each for each in comparison.methods if each.title == title)
    name = str(of_method(method).get("method.name", ""))
    return f" [{name}]" if name in METHODS else ""
