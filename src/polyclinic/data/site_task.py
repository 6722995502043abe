"""The task that a site's own files name, and whether it is the study's."""

from collections.abc import Mapping

from polyclinic.config.printing import literal
from polyclinic.config.task import AT_A_SITE
from polyclinic.data.errors import DataError, Findings
from polyclinic.data.folder import SiteFolder
from polyclinic.data.tasks import TASKS, Task, task_called


def own_task(site: SiteFolder, tasks: Mapping[str, Task]) -> Task | None:
    """The task that site.toml names, or the file beside it; None where it names none."""
    return task_called(site.toml.task, tasks, site.folder) if site.toml.task else None


def check_task(site: SiteFolder, task: Task, mistakes: Findings, whose: str) -> None:
    """Add a mistake where a site is for another task, or for one that means something else."""
    said = site.toml.task
    # A name that nobody knows here says only that: what it means goes with the study.
    known = said is not None and (said in TASKS or said.endswith(".toml"))
    try:
        own = own_task(site, TASKS) if known else None
    except DataError as error:
        mistakes.add_all(error.mistakes)
        return
    name = own.name if own else said
    if name not in (None, task.name):
        mistakes.add(f"is for the task {name}, {whose} {task.name}")
    elif own:
        for text in own.unlike(task):
            mistakes.add(f"knows another task {name}: {text}")


def prepared_otherwise(site: SiteFolder, task: Task, tasks: Mapping[str, Task] = TASKS) -> str:
    """What the task file beside the images says of preparing them that does not count, or ""."""
    said = site.toml.task or ""
    try:
        own = own_task(site, tasks) if said.endswith(".toml") else None
    except DataError:  # which is a mistake already
        return ""
    if own is None or own.name != task.name:
        return ""
    found = {
        key: pair
        for key, pair in own.prepared_otherwise(task).items()
        if key not in site.toml.preparation and None not in pair
    }
    if not found:
        return ""
    told = ", ".join(
        f"{key} {literal(there)}, not {literal(here)}" for key, (here, there) in found.items()
    )
    kept = ", ".join(f"{key} = {literal(found[key][0])}" for key in AT_A_SITE if key in found)
    advice = f"; to keep its own way write {kept} into site.toml" if kept else ""
    return f"images are prepared otherwise than {said} says: {told}{advice}"
