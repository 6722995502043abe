"""What the pixels of a site's masks and labels mean: which values or colours, which classes.

A site that does not tell some classes apart has them in one group, written as the first of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from polyclinic.config.mistakes import did_you_mean
from polyclinic.data.code_tables import Codes
from polyclinic.data.site_files import SiteToml
from polyclinic.data.tasks import Task
from polyclinic.masks import UNLABELLED, Groups, group_names

NOTHING = "unlabelled"  # the name of what says nothing


@dataclass(frozen=True)
class Coding:
    """How files write classes: value or colour → class, or UNLABELLED."""

    values: Mapping[int, int]
    colours: Mapping[str, int]
    names: Mapping[int, str]  # class → what it is called, UNLABELLED too
    groups: Groups
    certain: bool = True  # else site.toml has mistakes, and no file is blamed for its values


@dataclass(frozen=True)
class SiteCoding:
    """How a site writes masks, and how labels."""

    masks: Coding
    labels: Coding


def coding_of(toml: SiteToml, task: Task) -> tuple[SiteCoding, list[str]]:
    """What a site's files mean for a task, and what is wrong with what site.toml says of it."""
    errors: list[str] = []
    told = annotated(toml.annotates, task, errors)
    sets = _meant(toml.masks, task, "", errors)
    groups = told or _grouped(sets, task, errors, whole=True)
    masks = _coding(toml.masks, sets, groups, task, errors)
    sets = _meant(toml.weak, task, "weak.", errors)
    if sets and not told:
        groups = _grouped(sets, task, errors, whole=False)
    labels = _coding(toml.weak, sets, groups, task, errors)
    certain = not errors
    coding = SiteCoding(replace(masks, certain=certain), replace(labels, certain=certain))
    return coding, list(dict.fromkeys(errors))


def annotated(names: tuple[str, ...], task: Task, errors: list[str]) -> Groups:
    """The groups where only these classes and regions are annotated; empty for all classes.

    Classes are in one group where none of the names tells them apart.
    """
    sets = [_classes(name, task, "annotates", errors) for name in names]
    belongs = [tuple(number in each for each in sets) for number in range(len(task.classes))]
    return _unless_all_alone([belongs.index(each) for each in belongs]) if names else ()


Code = int | str  # a value or a colour
Sets = Mapping[Code, frozenset[int]]  # what it stands for; nothing where unlabelled


def _meant(codes: Codes, task: Task, place: str, errors: list[str]) -> Sets:
    return {
        code: frozenset().union(
            *(_classes(name, task, f"{place}{key} {code}", errors) for name in names)
        )
        if names != (NOTHING,)
        else frozenset()
        for key, table in (("values", codes.values), ("colours", codes.colours))
        for code, names in table.items()
    }


def _classes(name: str, task: Task, place: str, errors: list[str]) -> frozenset[int]:
    if name in task.classes:
        return frozenset({task.classes.index(name)})
    if name in task.regions:
        return frozenset(task.regions[name])
    known = list(dict.fromkeys((*task.classes, *task.regions)))
    errors.append(
        f'{place}: the task {task.name} has no class or region "{name}" '
        f"(allowed: {', '.join(known)}){did_you_mean(name, known)}"
    )
    return frozenset()


def _grouped(sets: Sets, task: Task, errors: list[str], *, whole: bool) -> Groups:
    """The groups that values and colours make; with `whole` every class must be in one."""
    found: dict[int, tuple[Code, frozenset[int]]] = {}
    for code, classes in sets.items():
        for number in classes:
            other, same = found.setdefault(number, (code, classes))
            if same != classes:
                errors.append(
                    f"{other} and {code} overlap: {task.classes[number]} belongs to one of them"
                )
    missing = [name for number, name in enumerate(task.classes) if number not in found]
    if whole and found and missing and not errors:  # else they may be those with a typo
        errors.append(
            f"no value or colour stands for {', '.join(missing)}; put what is not annotated beside "
            f'what it cannot be told from, such as ["{task.classes[0]}", "{missing[0]}"]'
        )
    return _unless_all_alone(
        [
            min(found[number][1]) if number in found else number
            for number in range(len(task.classes))
        ]
    )


def _unless_all_alone(groups: list[int]) -> Groups:
    return () if groups == list(range(len(groups))) else tuple(groups)


def _coding(codes: Codes, sets: Sets, groups: Groups, task: Task, errors: list[str]) -> Coding:
    names = {**group_names(task.classes, groups), UNLABELLED: NOTHING}

    def number(code: Code) -> int:
        firsts = sorted({groups[each] if groups else each for each in sets[code]})
        if len(firsts) > 1:
            told = ", ".join(names[each] for each in firsts)
            errors.append(f"{code} stands for {told}, which `annotates` tells apart")
        return firsts[0] if firsts else UNLABELLED

    values = {value: number(value) for value in codes.values}
    plain = {first: first for first in names if first != UNLABELLED}
    return Coding(
        {UNLABELLED: UNLABELLED, **(values or plain)},
        {colour: number(colour) for colour in codes.colours},
        names,
        groups,
    )
