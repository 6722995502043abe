"""What boxes alone allow to label: nothing here looks at a mask but to find its boxes."""

from collections.abc import Sequence

import numpy as np

from polyclinic.masks import UNLABELLED, Mask
from polyclinic.weak.boxes import Box, Shape, find_boxes
from polyclinic.weak.kind import Convert, Kind, Sparsity
from polyclinic.weak.scribbles import scribbles
from polyclinic.weak.style import Region, Style

THIRD = 1 / 3


def box_kind(
    convert: Convert, summary: str, *, turned: bool = False, sparsity: Sparsity = "dense"
) -> Kind:
    """The kind that finds a mask's boxes, upright or turned, and converts them."""

    def draw(mask: Mask, rng: np.random.Generator, style: Style) -> Mask:
        return convert(find_boxes(mask, style, turned=turned), mask.shape, rng, style)

    core = 1.0 if convert is filled else THIRD if convert is as_blocks else None
    return Kind(draw, summary, "3 clicks" if turned else "2 clicks", sparsity, convert, core)


def filled(boxes: Sequence[Box], shape: Shape, _: np.random.Generator, __: Style) -> Mask:
    """Each box filled with its class, smaller ones on top, on background."""
    label = np.zeros(shape, dtype=np.uint8)
    for box in _larger_first(boxes):
        label[box.inside(shape)] = box.number
    return label


def as_blocks(boxes: Sequence[Box], shape: Shape, _: np.random.Generator, style: Style) -> Mask:
    """The central third of each box, and background where no grown box reaches.

    Where another box lies within an outline, the middle third of the way between their ellipses.
    """
    label = np.full(shape, UNLABELLED, dtype=np.uint8)
    label[_beyond(boxes, shape, style.margin * min(shape))] = 0
    for box in _larger_first(boxes):
        inner = _largest_within(box, boxes, style)
        label[_between(box, inner, shape) if inner else _core(box, shape)] = box.number
    return label


def as_scribbles(
    boxes: Sequence[Box], shape: Shape, rng: np.random.Generator, style: Style
) -> Mask:
    """Scribbles as if each object were the ellipse that its box holds."""
    ellipses = np.zeros(shape, dtype=np.uint8)
    for box in _larger_first(boxes):
        ellipses[box.square_radius(shape) <= 1] = box.number
        ellipses[box.middle(shape)] = box.number
    label = scribbles(ellipses, rng, style)
    label[(label == 0) & ~_beyond(boxes, shape, 0)] = UNLABELLED
    return label


def _larger_first(boxes: Sequence[Box]) -> list[Box]:
    return sorted(boxes, key=lambda box: -box.height * box.width)


def _beyond(boxes: Sequence[Box], shape: Shape, margin: float) -> Region:
    """Pixels outside all boxes grown by `margin`, or by less where that leaves none."""
    for less in (margin, margin / 2, margin / 4, 0.0):
        beyond = np.ones(shape, dtype=bool)
        for box in boxes:
            beyond &= ~box.inside(shape, margin=less)
        if beyond.any():
            break
    return beyond


def _largest_within(outer: Box, boxes: Sequence[Box], style: Style) -> Box | None:
    """The largest box of another class that an outline of this class holds, if there is one."""
    classes = set(style.outline(outer.number)) - {outer.number}
    inner = [box for box in boxes if box.number in classes and outer.holds(box.row, box.column)]
    return max(inner, key=lambda box: box.height * box.width, default=None)


def _core(box: Box, shape: Shape) -> Region:
    core = box.inside(shape, share=THIRD)
    core[box.middle(shape)] = True
    return core


def _between(outer: Box, inner: Box, shape: Shape) -> Region:
    to_outer = (1 - np.sqrt(outer.square_radius(shape))) * (outer.height + outer.width)
    to_inner = (np.sqrt(inner.square_radius(shape)) - 1) * (inner.height + inner.width)
    ring = (to_outer > 0) & (to_inner > 0)
    way = to_inner / np.where(ring, to_inner + to_outer, 1)
    return np.asarray(ring & (way >= THIRD) & (way <= 2 * THIRD))
