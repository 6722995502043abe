"""What was done, in the words of a paper's methods section, from the resolved settings."""

from collections.abc import Iterator

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
    run = comparison.runs[0]
    about, settings = run.about, of_method(comparison.methods[0])
    train, val, test = (
        sum(getattr(site, split) for site in comparison.about_sites)
        for split in ("train", "val", "test")
    )
    kinds = dict.fromkeys(site.kind for site in comparison.about_sites)
    trained = "full masks" if list(kinds) == ["mask"] else f"labels ({', '.join(kinds)})"
    side = settings.get("task.resolution")
    yield (
        f"We segmented {enumeration(list(comparison.regions))} (task {about.task.name}) with "
        f"{amount(len(comparison.sites), 'site')}, {count(train)} training, {count(val)} "
        f"validation and {count(test)} test images in all, patients being in one split "
        f"only; sites trained on {trained}."
    )
    yield (
        f"The network was {about.network} with {count(about.parameters)} parameters"
        + (f" on images of {side} × {side} pixels." if side else ".")
    )
    known = [f"{m.title}{_cited(m.title, comparison)}" for m in comparison.methods]
    yield f"We compared {enumeration(known)}."
    rounds, steps = settings.get("federation.rounds"), settings.get("training.iterations")
    optimizer, rate = settings.get("training.optimizer"), settings.get("training.learning_rate")
    if rounds:
        work = f" of {amount(int(steps), 'iteration')}" if isinstance(steps, int) else ""
        yield (
            f"Each was trained for {amount(int(rounds), 'round')}{work} at every site with "
            f"{optimizer} (learning rate {rate}, batches of {settings.get('training.batch')}), "
            f"with {amount(len({r.about.seed for r in comparison.runs}), 'seed')}."
        )
    choice = settings.get("evaluation.choose")
    which = (
        "of the last round" if choice == "last" else "of the round with the best validation Dice"
    )
    yield f"The model {which} was scored once on the test cases."
    yield (
        "Intervals are bootstrap intervals over patients within sites; methods were compared with "
        "the best one by sign flips of patients' paired differences, corrected by Holm."
    )
    yield f"All was run with Polyclinic {about.versions.get('polyclinic', '')}.".replace(" .", ".")


def _cited(title: str, comparison: Comparison) -> str:
    method = next(each for each in comparison.methods if each.title == title)
    name = str(of_method(method).get("method.name", ""))
    return f" [{name}]" if name in METHODS else ""
