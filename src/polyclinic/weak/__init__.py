"""Weak labels made from full masks: `weaken(mask, "scribble", rng, task="fundus")`."""

from collections.abc import Mapping
from difflib import get_close_matches

import numpy as np

from polyclinic.weak.blocks import blocks
from polyclinic.weak.boxed import box, box_block, box_scribble, rotated_box, rotated_box_block
from polyclinic.weak.depth import deepest
from polyclinic.weak.kind import Kind
from polyclinic.weak.points import points
from polyclinic.weak.scribbles import ragged_scribbles, scribbles
from polyclinic.weak.style import UNLABELLED, Mask, TaskLike, present, style_of

KINDS: dict[str, Kind] = {
    "point": Kind(points, "four dabs in each object and four around it", "8 clicks"),
    "scribble": Kind(scribbles, "a stroke inside", "8"),
    "scribble2": Kind(ragged_scribbles, "a stroke inside", "8"),
    "block": Kind(blocks, "b", "8"),
    "box": Kind(box, "b", "8"),
    "rotated-box": Kind(rotated_box, "b", "8"),
    "box-block": Kind(box_block, "b", "8"),
    "box-scribble": Kind(box_scribble, "b", "8"),
    "rotated-box-block": Kind(rotated_box_block, "b", "8"),
}


def weaken(mask: Mask, kind: str, rng: np.random.Generator, task: str | TaskLike | None = None) -> Mask:
    label = KINDS[kind].draw(mask, rng, style_of(task))
    return _completed(label, mask)


def _completed(label: Mask, mask: Mask) -> Mask:
    """The label with a pixel of each class that the mask has."""
    for number in set(present(mask)) - set(present(label)):
        label[deepest(mask == number)] = number
    return label
