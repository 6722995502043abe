"""What there is to segment: a task's classes, scored regions, input and preprocessing."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from polyclinic.config.mistakes import did_you_mean
from polyclinic.data.errors import refuse

Normalisation = Literal["minmax", "standard"]


@dataclass(frozen=True)
class Task:
    """One kind of segmentation: classes by number, regions as unions of classes, square input."""

    name: str
    summary: str
    channels: int
    classes: tuple[str, ...]
    regions: Mapping[str, tuple[int, ...]] = field(hash=False)
    resolution: int = 384
    normalisation: Normalisation = "minmax"
    fill: float = 0.0  # what augmentation puts beyond the image's border, after normalisation
    dark: float | None = None  # normalised pixels up to this were out of the camera's view

    def __post_init__(self) -> None:
        if self.resolution < 1:
            raise ValueError(f"task {self.name}: resolution must be above 0, got {self.resolution}")

    def with_resolution(self, resolution: int) -> "Task":
        """The same task on images of `resolution` × `resolution` pixels."""
        return replace(self, resolution=resolution)


def _one_object(name: str, thing: str, summary: str, *, channels: int, **more: Any) -> Task:
    """A task with one class beside background."""
    return Task(name, summary, channels, ("background", thing), {thing: (1,)}, **more)


TASKS: Mapping[str, Task] = {
    task.name: task
    for task in (
        Task(
            name="fundus",
            summary="optic disc and cup in colour photographs of the eye's fundus",
            channels=3,
            classes=("background", "rim", "cup"),
            regions={"disc": (1, 2), "cup": (2,)},
            dark=0.05,
        ),
        _one_object(
            "octa",
            "faz",
            "foveal avascular zone in OCT angiography",
            channels=1,
            resolution=256,
            fill=0.8,
        ),
        _one_object("polyp", "polyp", "polyps in colonoscopy", channels=3, dark=0.05),
        _one_object(
            "prostate",
            "prostate",
            "prostate in T2-weighted MRI slices, grouped by patient",
            channels=1,
            fill=0.8,
        ),
    )
}


def task_called(name: str, tasks: Mapping[str, Task] = TASKS) -> Task:
    """The task of this name, of these tasks; a DataError where there is none."""
    if name not in tasks:
        refuse([f'no task "{name}" (allowed: {", ".join(tasks)}){did_you_mean(name, tasks)}'])
    return tasks[name]
