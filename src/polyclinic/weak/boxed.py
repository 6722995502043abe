"""What boxes alone allow to label: nothing here looks at a mask but to find its boxes."""

from collections.abc import Sequence

import numpy as np

from polyclinic.weak.boxes import Box, Shape, find_boxes
from polyclinic.weak.scribbles import scribbles
from polyclinic.weak.style import UNLABELLED, Mask, Region, Style

THIRD = 1 / 3


def box(mask: Mask, _: np.random.Generator, style: Style) -> Mask:
    """Upright boxes, filled."""
    return filled(find_boxes(mask, style), mask.shape)


def rotated_box(mask: Mask, _: np.random.Generator, style: Style) -> Mask:
    """Boxes of the smallest area, filled."""
    return filled(find_boxes(mask, style, turned=True), mask.shape)


def box_block(mask: Mask, _: np.random.Generator, style: Style) -> Mask:
    """Blocks out of upright boxes."""
    return as_blocks(find_boxes(mask, style), mask.shape, style)


def rotated_box_block(mask: Mask, _: np.random.Generator, style: Style) -> Mask:
    """Blocks out of turned boxes."""
    return as_blocks(find_boxes(mask, style, turned=True), mask.shape, style)


def box_scribble(mask: Mask, rng: np.random.Generator, style: Style) -> Mask:
    """Scribbles within the ellipses of upright boxes."""
    return as_scribbles(find_boxes(mask, style), mask.shape, rng, style)


def filled(boxes: Sequence[Box], shape: Shape) -> Mask:
    """Each box filled with its class, smaller ones on top, on background."""
    label = np.zeros(shape, dtype=np.uint8)
    for each in _larger_first(boxes):
        label[each.inside(shape)] = each.number
    return label


def as_blocks(boxes: Sequence[Box], shape: Shape, style: Style) -> Mask:
    """The central third of each box, and background where no grown box reaches.

    Where another box lies within an outline, the middle third of the way between their ellipses.
    """
    label = np.full(shape, UNLABELLED, dtype=np.uint8)
    label[_beyond(boxes, shape, style.margin * min(shape))] = 0
    for each in _larger_first(boxes):
        inner = _within(each, boxes, style)
        label[_between(each, inner, shape) if inner else _core(each, shape)] = each.number
    return label


def as_scribbles(
    boxes: Sequence[Box], shape: Shape, rng: np.random.Generator, style: Style
) -> Mask:
    """Scribbles as if each object were the ellipse that its box holds."""
    ellipses = np.zeros(shape, dtype=np.uint8)
    for each in _larger_first(boxes):
        ellipses[each.radius(shape) <= 1] = each.number
        ellipses[each.middle(shape)] = each.number
    label = scribbles(ellipses, rng, style)
    label[(label == 0) & ~_beyond(boxes, shape, 0)] = UNLABELLED
    return label


def _larger_first(boxes: Sequence[Box]) -> list[Box]:
    return sorted(boxes, key=lambda each: -each.height * each.width)


def _beyond(boxes: Sequence[Box], shape: Shape, margin: float) -> Region:
    """Pixels that are outside all boxes grown by `margin`, or by less where that leaves none."""
    beyond = np.ones(shape, dtype=bool)
    for less in (margin, margin / 2, margin / 4, 0):
        beyond = np.ones(shape, dtype=bool)
        for each in boxes:
            beyond &= ~each.inside(shape, margin=less)
        if beyond.any():
            break
    return beyond


def _within(outer: Box, boxes: Sequence[Box], style: Style) -> Box | None:
    """The largest box of another class that belongs within the outline of this one."""
    classes = set(style.outline(outer.number)) - {outer.number}
    place = (abs(each.row - outer.row) < outer.height / 2 for each in boxes)
    inner = [each for each, near in zip(boxes, place, strict=True) if near and each.number in classes]
    return max(inner, key=lambda each: each.height * each.width, default=None)


def _core(each: Box, shape: Shape) -> Region:
    core = each.inside(shape, share=THIRD)
    core[each.middle(shape)] = True
    return core


def _between(outer: Box, inner: Box, shape: Shape) -> Region:
    to_outer = (1 - outer.radius(shape)) * (outer.height + outer.width)
    to_inner = (inner.radius(shape) - 1) * (inner.height + inner.width)
    ring = (to_outer > 0) & (to_inner > 0)
    way = to_inner / np.where(ring, to_inner + to_outer, 1)
    return np.asarray(ring & (way >= THIRD) & (way <= 2 * THIRD))
