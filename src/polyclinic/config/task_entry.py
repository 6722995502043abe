"""Reads a task: by its name, written out in a study, or in a file of its own."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from polyclinic.config.checking import check
from polyclinic.config.chosen import TaskChoice
from polyclinic.config.mistakes import ConfigError, Mistake, unknown
from polyclinic.config.printing import literal, plain
from polyclinic.config.reading import read_toml
from polyclinic.config.tables import Tables
from polyclinic.config.task import Task

SUFFIX = ".toml"


def read_task(file: Path) -> Task:
    """The task of a file, called as the file if it gives no name; ConfigError has all mistakes."""
    mistakes: list[Mistake] = []
    task = check(Task, _table(file), "", mistakes)
    if task is None:
        raise ConfigError(file, mistakes)
    return task


def chosen_task(entry: Any, tables: Tables, mistakes: list[Mistake]) -> TaskChoice | None:
    """The task of a study's entry: a name, with changes beside it; a whole table; or a file.

    An entry with classes is a whole task, whatever other tasks have its name. Of a name such as
    mine.py:VESSELS the study keeps what it stands for: a task is data, wherever it comes from.
    """
    if not isinstance(entry, dict):
        problem = "must be the name of a task or a table" if entry is not None else "is required"
        value = "" if entry is None else literal(entry)
        mistakes.append(Mistake("task", problem, value, tuple(tables.task)))
        return None
    given = {key: value for key, value in entry.items() if key != "file"}
    base: dict[str, Any] | None = {}
    if "file" in entry:
        base = _in_file(entry["file"], mistakes)
    elif "classes" not in given:
        base = _named(given.pop("name", None), tables, mistakes)
    if base is None:
        return None
    merged = {**base, **given}
    kept = {k: v for k, v in merged.items() if k in given or Task.in_effect(k, merged)}
    task = check(Task, kept, "task", mistakes)
    return None if task is None else TaskChoice(name=task.name, built=task)


def _named(name: Any, tables: Tables, mistakes: list[Mistake]) -> dict[str, Any] | None:
    """The settings of the task that an entry changes; None after saying why there is none."""
    names = tuple(tables.task)
    if name is None:
        problem = "is required, or classes, or file"
        mistakes.append(Mistake("task.name", problem, allowed=names))
        return None
    try:
        return plain(tables.find("task", str(name))[0].settings)
    except KeyError:
        problem = "there is no such task (one of your own needs its classes)"
        mistakes.append(unknown("task.name", problem, literal(name), name, names))
    except ValueError as error:
        mistakes.append(Mistake("task.name", str(error), literal(name)))
    return None


def _in_file(file: Any, mistakes: list[Mistake]) -> dict[str, Any] | None:
    if not isinstance(file, str):
        mistakes.append(Mistake("task.file", "must be a path", literal(file)))
        return None
    path = Path(file)
    found: list[Mistake] = []
    try:
        table = _table(path)
    except ConfigError as error:
        reasons = "; ".join(f"{mistake.problem}" for mistake in error.mistakes)
        meant = error.mistakes[0].meant
        mistakes.append(Mistake("task.file", reasons, literal(file), (), meant))
        return None
    task = check(Task, table, "", found)
    mistakes += [replace(mistake, key=f"{path.name}: {mistake.key}") for mistake in found]
    return None if task is None else plain(task.settings)


def _table(file: Path) -> dict[str, Any]:
    name = file.name.removesuffix(SUFFIX).removesuffix(".task")
    return {"name": name} | read_toml(file)
