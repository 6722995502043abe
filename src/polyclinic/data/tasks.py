"""What there is to segment: a task's classes, scored regions, input and preprocessing."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

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
    resolution: int
    normalisation: Normalisation = "minmax"
    fill: float = 0.0  # what augmentation puts beyond the image's border, after normalisation
    dark: float | None = None  # normalised pixels up to this were out of the camera's view

    def __post_init__(self) -> None:
        if self.resolution < 1:
            raise ValueError(f"task {self.name}: resolution must be above 0, got {self.resolution}")

    def with_resolution(self, resolution: int) -> "Task":
        """The same task on images of `resolution` × `resolution` pixels."""
        return replace(self, resolution=resolution)


TASKS: Mapping[str, Task] = {
    task.name: task
    for task in (
        Task(
            name="fundus",
            summary="optic disc and cup in colour photographs of the eye's fundus",
            channels=3,
            classes=("background", "rim", "cup"),
            regions={"disc": (1, 2), "cup": (2,)},
            resolution=384,
            dark=0.05,
        ),
        Task(
            name="octa",
            summary="foveal avascular zone in OCT angiography",
            channels=1,
            classes=("background", "faz"),
            regions={"faz": (1,)},
            resolution=256,
            fill=0.8,
        ),
        Task(
            name="polyp",
            summary="polyps in colonoscopy",
            channels=3,
            classes=("background", "polyp"),
            regions={"polyp": (1,)},
            resolution=384,
            dark=0.05,
        ),
        Task(
            name="prostate",
            summary="prostate in T2-weighted MRI slices, grouped by patient",
            channels=1,
            classes=("background", "prostate"),
            regions={"prostate": (1,)},
            resolution=384,
            fill=0.8,
        ),
    )
}


def task_called(name: str, tasks: Mapping[str, Task] = TASKS) -> Task:
    """The task of this name, of these tasks; a DataError where there is none."""
    if name not in tasks:
        refuse([f'no task "{name}" (allowed: {", ".join(tasks)}){did_you_mean(name, tasks)}'])
    return tasks[name]
