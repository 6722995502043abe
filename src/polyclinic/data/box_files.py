"""An annotator's own boxes: `labels/box/<case>.csv`, or any other kind of label that boxes make.

A row is a box: `class,left,top,width,height` in pixels, the class by its name or number. A column
`angle` has the degrees by which boxes are turned clockwise around their middle.
"""

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from polyclinic.config.mistakes import did_you_mean
from polyclinic.data.errors import UnreadableError
from polyclinic.data.site_files import read_csv
from polyclinic.data.tasks import Task
from polyclinic.masks import Groups, known_regions
from polyclinic.seeds import numpy_generator
from polyclinic.weak import KINDS, Box, label_boxes

SUFFIX = ".csv"
COLUMNS = ("class", "left", "top", "width", "height")
Size = tuple[int, int]  # rows and columns of an image


def made_of_boxes(kind: str) -> bool:
    """Whether files of this kind may hold boxes."""
    return kind in KINDS and KINDS[kind].convert is not None


def read_boxed_label(
    path: Path, kind: str, size: Size, task: Task, groups: Groups = ()
) -> NDArray[np.uint8]:
    """The label of this kind that the boxes of a file make, for an image of this size."""
    boxes = read_boxes(path, size, task, groups)
    return label_boxes(boxes, size, kind, numpy_generator("boxes", kind, path.stem), task)


def read_boxes(path: Path, size: Size, task: Task, groups: Groups = ()) -> list[Box]:
    """The boxes of a file; no row means that there is only background to see."""
    objects = _objects(task, groups)
    header, rows = read_csv(path)
    if set(header) - {"angle"} != set(COLUMNS):
        found = ", ".join(header) or "nothing"
        raise UnreadableError(f"columns are {', '.join(COLUMNS)} and maybe angle; found {found}")
    boxes, errors = [], []
    for number, row in enumerate(rows, 1):
        try:
            boxes.append(_box(row, size, objects))
        except ValueError as error:
            errors.append(f"box {number} {error}")
    if errors:
        raise UnreadableError("; ".join(errors))
    return boxes


def _box(row: Mapping[str, str], size: Size, objects: Mapping[str, int]) -> Box:
    left, top, width, height = (_number(row, name) for name in COLUMNS[1:])
    angle = _number(row, "angle") if row.get("angle") else 0.0
    if width <= 0 or height <= 0:
        raise ValueError(f"has no area: {width:g}×{height:g}")
    # In a box's coordinates the first pixel is from 0 to 1, in a `Box` its middle is 0.
    box = Box(
        _class(row["class"], objects),
        row=top + height / 2 - 0.5,
        column=left + width / 2 - 0.5,
        height=height,
        width=width,
        angle=angle,
    )
    _check_place(box, size)
    return box


def _check_place(box: Box, size: Size) -> None:
    """A turned box may reach over the border, as that of an object there does; others may not."""
    for middle, length, pixels in zip(
        (box.row, box.column), (box.height, box.width), size, strict=True
    ):
        reach = 0 if box.angle else length / 2
        if not -0.5 <= middle - reach <= middle + reach <= pixels - 0.5:
            rows, columns = size
            raise ValueError(f"lies outside of the image, which is {rows}×{columns}")


def _objects(task: Task, groups: Groups) -> dict[str, int]:
    """What boxes may show, by name: classes, and regions that the site sees as one."""
    numbers = groups or tuple(range(len(task.classes)))
    objects = dict(zip(task.classes, numbers, strict=True))
    for region, classes in known_regions(task.regions, groups).items():
        if len({numbers[each] for each in classes}) == 1:
            objects[region] = numbers[classes[0]]
    return {name: number for name, number in objects.items() if number != numbers[0]}


def _class(word: str, objects: Mapping[str, int]) -> int:
    number = objects.get(word, int(word) if word.isdecimal() else 0)
    if number not in objects.values():
        allowed = ", ".join(f"{name} ({number})" for name, number in objects.items())
        raise ValueError(f'has class "{word}", not {allowed}{did_you_mean(word, list(objects))}')
    return number


def _number(row: Mapping[str, str], column: str) -> float:
    try:
        number = float(row[column])
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f'has "{row[column]}" as {column}, which is no number')
    return number
