"""The task that a site's own files name, and whether it is the study's."""

from collections.abc import Mapping

from polyclinic.data.errors import DataError, Findings
from polyclinic.data.folder import SiteFolder
from polyclinic.data.tasks import TASKS, Task, task_called


def own_task(site: SiteFolder, tasks: Mapping[str, Task]) -> Task | None:
    """The task that site.toml names, or the file beside it; None where it names none."""
    return task_called(site.toml.task, tasks, site.folder) if site.toml.task else None


def check_task(
    site: SiteFolder, task: Task, mistakes: Findings, whose: str, tasks: Mapping[str, Task] = TASKS
) -> None:
    """Add a mistake where a site is for another task, or for one that means something else."""
    said = site.toml.task
    # A name that nobody knows here says only that: what it means goes with the study.
    known = said is not None and (said in tasks or said.endswith(".toml"))
    try:
        own = own_task(site, tasks) if known else None
    except DataError as error:
        for text in error.mistakes:
            mistakes.add(text)
        return
    name = own.name if own else said
    if name not in (None, task.name):
        mistakes.add(f"is for the task {name}, {whose} {task.name}")
    elif own:
        for text in own.unlike(task):
            mistakes.add(f"knows another task {name}: {text}")
