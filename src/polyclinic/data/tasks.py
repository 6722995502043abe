"""What there is to segment: the tasks that are built in, each a file as a user would write it."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from polyclinic.config.checking import check
from polyclinic.config.mistakes import ConfigError, Mistake, did_you_mean
from polyclinic.config.printing import plain
from polyclinic.config.task import Fit, Normalisation, Task
from polyclinic.config.task_entry import SUFFIX, read_task
from polyclinic.data.errors import refuse

__all__ = ["TASKS", "Fit", "Normalisation", "Task", "as_at_site", "task_called"]

PRESETS = Path(__file__).parent / "presets"
TASKS: Mapping[str, Task] = {
    task.name: task
    for task in (
        Task(**tomllib.loads(file.read_text(encoding="utf-8")))
        for file in sorted(PRESETS.glob("*.task.toml"))
    )
}


def task_called(name: str, tasks: Mapping[str, Task] = TASKS, beside: Path = Path()) -> Task:
    """The task of this name, or of this file in the folder `beside`; a DataError says why none."""
    if name.endswith(SUFFIX):
        try:
            return read_task(beside / name)
        except ConfigError as error:
            refuse([f"{name}: {mistake}" for mistake in error.mistakes])
    if name not in tasks:
        refuse(
            [
                f'no task "{name}" (allowed: {", ".join(tasks)}, or a file such as '
                f"vessels.task.toml){did_you_mean(name, tasks)}"
            ]
        )
    return tasks[name]


def as_at_site(task: Task, changes: Mapping[str, Any], mistakes: list[str]) -> Task:
    """The task as a site prepares its images; the task itself after adding what is wrong."""
    found: list[Mistake] = []
    values = {**plain(task.settings), **changes}
    kept = {k: v for k, v in values.items() if k in changes or Task.in_effect(k, values)}
    changed = check(Task, kept, "", found) if changes else task
    mistakes += [str(mistake) for mistake in found]
    return changed or task
