"""A study as a Python object: read from its file, or written down in the script itself."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, TypedDict, Unpack

from polyclinic.api.given import Given
from polyclinic.catalog import installed, left_out
from polyclinic.config import (
    ConfigError,
    MethodChoice,
    Mistake,
    Tables,
    load_study,
    read_study,
    to_toml,
)
from polyclinic.config import Study as Settings

SOURCE = "pc.Study(…)"


class StudySettings(TypedDict, total=False):
    """The sections of a study; only `task` and `method` are needed."""

    name: str
    """The study's name and its folder under runs/; by default `study`."""
    seeds: Sequence[int]
    """Each seed makes a run of its own."""
    task: Any
    """A task's name, or a table with its settings."""
    network: Any
    """A name, a table with a name and settings, or a class of your own."""
    method: Any
    """One or a list: names, tables with a name and settings, methods of your own."""
    data: Mapping[str, Any]
    """Where the cases come from."""
    site: Sequence[Any]
    """The sites that the study names."""
    training: Mapping[str, Any]
    """How a site trains; `loss` may be a function of your own."""
    federation: Mapping[str, Any]
    """How sites are combined, and for how many rounds."""
    evaluation: Mapping[str, Any]
    """What is scored; `metrics` may hold a Metric of your own."""
    engine: Mapping[str, Any]
    """Device, threads and worker processes."""
    sweep: Mapping[str, Sequence[Any]]
    """Settings that take several values: `{"training.iterations": [10, 20]}`."""


class Study:
    """One task and network, one or several methods, each run with every seed.

    The keywords are the sections of a study's TOML file, with the same keys, defaults and checks;
    every mistake is reported at once, as a ConfigError. Paths are relative to the working
    directory. Where a file has a name, code itself may stand: `[MyMethod(mu=0.1), "fedavg"]`.
    """

    settings: Settings
    """All settings, resolved and checked."""

    def __init__(self, **settings: Unpack[StudySettings]) -> None:
        given = Given(_tables())
        content = {"name": "study"} | given.named(settings)
        self.tables = given.tables
        self.settings = read_study(content, given.tables, source=SOURCE, beside=Path())
        mistakes = [*_changed(settings.get("method"), self.settings.method)]
        if self.settings.engine.workers > 1 and (unreachable := given.unreachable()):
            problem = (
                f"{', '.join(unreachable)} is defined here, where other processes cannot find it"
            )
            mistakes.append(
                Mistake("engine.workers", f"{problem}; put it into a file, or use 1 worker")
            )
        if mistakes:
            raise ConfigError(SOURCE, mistakes)

    @classmethod
    def from_file(cls, path: str | Path, overrides: Sequence[str] = ()) -> "Study":
        """The study of a TOML file; `overrides` are as after --set: `["training.batch=4"]`."""
        study = cls.__new__(cls)
        study.tables = _tables()
        study.settings = load_study(path, overrides, study.tables)
        return study

    @property
    def name(self) -> str:
        """The study's name."""
        return self.settings.name

    def to_toml(self) -> str:
        """All settings, defaults included, as `polyclinic config` prints them."""
        return to_toml(self.settings)

    def __repr__(self) -> str:
        methods = ", ".join(choice.title for choice in self.settings.method)
        rounds, seeds = self.settings.federation.rounds, len(self.settings.seeds)
        task = f"{self.settings.task.name} at {self.settings.task.built.resolution}²"
        return f"<Study {self.name}: {methods}; {task}, rounds: {rounds}, seeds: {seeds}>"


def _tables() -> Tables:
    for sentence in left_out():
        warnings.warn(sentence, stacklevel=3)
    return installed()


def _changed(given: Any, choices: Sequence[MethodChoice]) -> list[Mistake]:
    """Methods whose settings did not survive: None is nothing that a file could say."""
    entries = given if isinstance(given, list | tuple) else [given]
    return [
        Mistake(f"method.{choice.name}", "has a setting that a file could not hold, such as None")
        for entry, choice in zip(entries, choices, strict=False)
        if is_dataclass(entry) and not isinstance(entry, type) and choice.built != entry
    ]
