"""What a study has chosen: names, and what they stand for, built with all settings."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from polyclinic.config.section import Section
from polyclinic.config.tables import Origin
from polyclinic.config.task import Task
from polyclinic.config.weak_settings import WeakSettings

Weighting = Literal["samples", "uniform", "steps", "paper"]


class Choice(Section):
    """A name from a table, what it stands for, built with all its settings, and its origin."""

    name: str
    """The name in the table."""
    built: Any
    """What the name stands for, with the settings that stand beside it in the file."""
    origin: Origin = Origin()
    """Where it comes from."""

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that it was built with, defaults filled in."""
        return {each.name: getattr(self.built, each.name) for each in fields(self.built)}


class TaskChoice(Choice):
    """A task with all that makes it, so that nothing else is needed to know it again."""

    built: Task

    @property
    def settings(self) -> dict[str, Any]:
        """The task in the form of its file, without its name."""
        return {name: value for name, value in self.built.settings.items() if name != "name"}


@dataclass(frozen=True)
class Factory:
    """What makes a network with these settings once its channels and classes are given."""

    make: Callable[..., Any]
    settings: Mapping[str, Any]

    def __call__(self, **given: Any) -> Any:
        """A new network."""
        return self.make(**given, **self.settings)


class NetworkChoice(Choice):
    """A network, and the file of weights that it starts from where not from the seed alone."""

    built: Factory
    pretrained: Path | None = None
    """A file of weights (.safetensors) to start from."""

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that the network is made with."""
        return dict(self.built.settings)


class MethodChoice(Choice):
    """A method, its name in tables and folders, and the finishing steps after the last round.

    With `labels` every site trains on these instead of its own kind, `weak` takes the place of the
    study's `training.weak`, and `weighting` that of `federation.weighting`.
    """

    title: str
    """The method's name in tables and folders; by default made from its names."""
    labels: str | None = None
    """What every site trains on with this method, in place of its own kind."""
    weak: WeakSettings | None = None
    """What differs from the study's `training.weak` with this method."""
    weighting: Weighting | None = None
    """What sites count by with this method, in place of the study's `federation.weighting`."""
    then: tuple[Choice, ...] = ()
    """Finishing steps after the last round: names, or tables with settings."""
    swept: Mapping[str, Any] = Field(default_factory=dict, exclude=True)
    """What a sweep has set for this method, by key."""
