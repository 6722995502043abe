"""What a study takes of a site's annotation, as if the site had no more."""

from collections.abc import Sequence

from polyclinic.data.coding import annotated
from polyclinic.data.tasks import Task
from polyclinic.masks import UNLABELLED, Groups, Mask, group_names, merged


def narrowed_groups(
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
