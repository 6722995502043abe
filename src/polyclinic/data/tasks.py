"""What there is to segment: the tasks that are built in, each a file as a user would write it."""

import tomllib
from collections.abc import Mapping
from pathlib import Path

from polyclinic.config.mistakes import did_you_mean
from polyclinic.config.task import Fit, Normalisation, Task
from polyclinic.data.errors import refuse

__all__ = ["TASKS", "Fit", "Normalisation", "Task", "task_called"]

PRESETS = Path(__file__).parent / "presets"
TASKS: Mapping[str, Task] = {
    task.name: task
    for task in (
        Task(**tomllib.loads(file.read_text(encoding="utf-8")))
        for file in sorted(PRESETS.glob("*.task.toml"))
    )
}


def task_called(name: str, tasks: Mapping[str, Task] = TASKS) -> Task:
    """The task of this name, of these tasks; a DataError where there is none."""
    if name not in tasks:
        refuse([f'no task "{name}" (allowed: {", ".join(tasks)}){did_you_mean(name, tasks)}'])
    return tasks[name]
