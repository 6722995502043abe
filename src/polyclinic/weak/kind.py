"""What a kind of weak label is."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from polyclinic.masks import Mask
from polyclinic.weak.boxes import Box, Shape
from polyclinic.weak.style import Style

Draw = Callable[[Mask, np.random.Generator, Style], Mask]
Convert = Callable[[Sequence[Box], Shape, np.random.Generator, Style], Mask]


Sparsity = Literal["sparse", "medium", "dense"]  # how much of an image is labelled
SPARSITIES: tuple[Sparsity, ...] = get_args(Sparsity)


@dataclass(frozen=True)
class Kind:
    """A way to label: how to make it from a mask, what it looks like, what it costs to draw."""

    draw: Draw
    summary: str
    cost: str  # an annotator's work for one object and its background
    sparsity: Sparsity = "medium"
    convert: Convert | None = None  # how to make it from boxes, where boxes are enough
    core: float | None = None  # the share of a box's sides labelled as object, where it is known
