"""A site between its files and its tensors, with all or a part of its annotation."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from polyclinic.data.aside import Aside
from polyclinic.data.coding import annotated
from polyclinic.data.preparing import Prepared
from polyclinic.data.splits import Splits
from polyclinic.data.tasks import Task
from polyclinic.masks import UNLABELLED, Groups, Mask, group_names, merged


@dataclass(frozen=True)
class LoadedCase:
    """One case in the task's square."""

    name: str
    patient: str
    image: Prepared
    mask: Mask | None
    own: Mask | None = None  # its own label of the site's kind
    spacing: tuple[float, float] = (1.0, 1.0)


@dataclass(frozen=True)
class LoadedSite:
    """A site as drawn or read, before its cases become tensors."""

    name: str
    kind: str
    cases: tuple[LoadedCase, ...]
    splits: Splits
    mistakes: tuple[str, ...]
    made: bool  # its labels are made from its masks, because it has none of this kind
    keep: Path | None = None  # where its tensors are, or will be, kept
    label_groups: Groups = ()
    mask_groups: Groups = ()
    measured: bool = False  # whether the size of all its pixels is known
    aside: Aside | None = None  # where its arrays lie, if not in memory


def narrowed(site: LoadedSite, names: tuple[str, ...], task: Task) -> LoadedSite:
    """The site with nothing annotated but the classes and regions that the study names."""
    pixels = [each for case in site.cases for each in (case.mask, case.own) if each is not None]
    told = (site.label_groups, site.mask_groups)
    groups, errors = _narrowed_groups(names, told, pixels, task)
    if not groups or errors:
        lines = (f"site {site.name}: {text}" for text in errors)
        return replace(site, mistakes=(*site.mistakes, *lines))
    cases = [
        replace(case, mask=_merged(case.mask, groups), own=_merged(case.own, groups))
        for case in site.cases
    ]
    return replace(site, cases=tuple(cases), label_groups=groups, mask_groups=groups)


def _merged(mask: Mask | None, groups: Groups) -> Mask | None:
    return None if mask is None else merged(mask, groups)


def _narrowed_groups(
    names: tuple[str, ...], told: Sequence[Groups], masks: Sequence[Mask], task: Task
) -> tuple[Groups, list[str]]:
    """The groups of classes where only these names count, and why a site cannot have them.

    `told` are the groups of its labels and of its masks.
    """
    errors: list[str] = []
    groups = annotated(names, task, errors)
    if not groups:
        return groups, errors
    if any(groups[number] != groups[first] for own in told for number, first in enumerate(own)):
        tells = " · ".join(group_names(task.classes, told[-1]).values())
        errors.append(f"annotates {', '.join(names)} in the study, but tells apart only {tells}")
    if masks and not any(merged(each, groups)[each != UNLABELLED].any() for each in masks):
        errors.append(f"has no pixel of {', '.join(names)}, which it annotates in the study")
    return groups, errors
