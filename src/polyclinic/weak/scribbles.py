"""Scribbles: a stroke of an unsteady brush inside each object, and one around all of them."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from polyclinic.masks import UNLABELLED, Mask
from polyclinic.weak.boxes import find_boxes
from polyclinic.weak.regions import Depth, depth, parts, without_holes
from polyclinic.weak.style import Region, Style, foreground, side_of

Level = NDArray[np.float32]  # H×W: pixels off the middle of a stroke, negative at one side of it
Places = NDArray[np.intp]  # N×2 rows and columns
WOBBLE = 0.2  # brush widths that a stroke is off by, changing
STRETCH = 4.0  # … over so many brush widths


@dataclass(frozen=True)
class Brush:
    """A brush of `width` pixels and the generator that moves it."""

    rng: np.random.Generator
    width: float

    def stroke(self, level: Level) -> Region:
        """The pixels that are less than half the brush off, give or take a wobble."""
        stroke = np.abs(level) < self.width
        off = WOBBLE * self.width * self.hills(np.argwhere(stroke), level.shape, STRETCH)
        stroke[stroke] = np.abs(level[stroke] + off) < self.width / 2
        return stroke

    def hills(self, places: Places, shape: tuple[int, ...], size: float) -> NDArray[np.float64]:
        """A random height around 0 for each place, alike where less than `size` widths apart.

        The landscape is the whole image's: a place has the same height whatever the others are.
        """
        step = size * self.width
        knots = self.rng.standard_normal([int(length / step) + 2 for length in shape])
        return np.asarray(ndimage.map_coordinates(knots, places.T / step, order=1))


HALF = np.float32(0.5)
DEEPEST = 0.42  # of the way from an object's edge to its middle
ROOM = 1.3  # brush widths from edge to stroke, for a stroke to go round inside
TURN = 0.25  # radians by which the stroke around objects is turned at most
LEANING = 0.3  # radians by which the openings of a stroke are off the horizontal
OPENING = 1.25  # radians, half of the widest
# A nearly dry brush leaves out what elastic bends of the picture would move off the stroke.
BEND, BENT_OVER = 0.56, 1.2  # brush widths
DRY, DRY_OVER = 2.0, 3.0  # standard deviations from which on nothing is left, and brush widths


def scribbles(mask: Mask, rng: np.random.Generator, style: Style) -> Mask:
    """Strokes within each object and around all of them."""
    label = np.full_like(mask, UNLABELLED)
    brush = _brush(mask, rng, style)
    background = mask == 0
    if background.any():
        label[background & brush.stroke(_around(mask, rng, style))] = 0
    for number in foreground(mask):
        outline = style.outlined(mask, number)
        for window, part in parts(outline, several=style.several, around=1):
            region = part & (mask[window] == number)
            if region.any():
                deep = rng.uniform(*style.depth) * side_of(mask)
                stroke = _inside(without_holes(part), region, brush, deep, arcs=style.arcs)
                label[window][region & stroke] = number
    return label


def ragged_scribbles(mask: Mask, rng: np.random.Generator, style: Style) -> Mask:
    """The same strokes by a nearly dry brush: thinner here and there, and with gaps."""
    label = scribbles(mask, rng, style)
    brush = _brush(mask, rng, style)
    places = np.argwhere(label != UNLABELLED)
    bends = [brush.hills(places, mask.shape, BENT_OVER) for _ in mask.shape]
    moved = places + (BEND * brush.width * np.stack(bends, axis=1)).round().astype(np.intp)
    moved = moved.clip(0, np.array(mask.shape) - 1)
    gone = label[tuple(moved.T)] != label[tuple(places.T)]
    gone |= brush.hills(places, mask.shape, DRY_OVER) > DRY
    label[tuple(places[gone].T)] = UNLABELLED
    return label


def _brush(mask: Mask, rng: np.random.Generator, style: Style) -> Brush:
    return Brush(rng, max(1.0, style.brush * side_of(mask)))


def _around(mask: Mask, rng: np.random.Generator, style: Style) -> Level:
    """Midway between the objects and a frame that is a little turned."""
    objects = mask != 0
    if style.boxed:
        for box in find_boxes(mask, style):
            objects |= box.inside(mask.shape, margin=style.halo * side_of(mask))
    to_frame = _to_frame(mask.shape, style.frame, rng.uniform(-TURN, TURN))
    level = HALF * (depth(~objects, edge=False) - to_frame)
    level[objects] = -to_frame[objects]  # where the frame crosses a box, its line is not doubled
    return level


def _to_frame(shape: tuple[int, ...], share: float, turn: float) -> Level:
    """Distance to the nearest side of a turned frame that is `share` of the image."""
    down, right = (axis.astype(np.float32) for axis in np.ogrid[: shape[0], : shape[1]])
    down, right = (axis - np.float32((axis.size - 1) / 2) for axis in (down, right))
    sine, cosine = np.float32(np.sin(turn)), np.float32(np.cos(turn))
    rows, columns = np.abs(cosine * down - sine * right), np.abs(sine * down + cosine * right)
    high, wide = (np.float32(share * size / 2) for size in shape)
    return np.minimum(high - rows, wide - columns)


def _inside(whole: Region, region: Region, brush: Brush, deep: float, *, arcs: bool) -> Region:
    """A stroke midway in a ring, else `deep` in an object, or along the middle of a thin one."""
    edge = depth(whole)
    inner = whole & ~region
    if depth(inner).max() > brush.width:
        return brush.stroke(HALF * (edge - depth(~inner, edge=False)))
    deep = min(deep, DEEPEST * float(edge.max()))
    if deep < ROOM * brush.width:
        return _ridge(edge, brush.width)
    stroke = brush.stroke(edge - np.float32(deep))
    return stroke & _two_arcs(stroke.shape, brush.rng) if arcs else stroke


def _ridge(edge: Depth, width: float) -> Region:
    top = (edge > 0) & (edge >= ndimage.maximum_filter(edge, 3))
    return depth(~top, edge=False) <= width / 2


def _two_arcs(shape: tuple[int, ...], rng: np.random.Generator) -> Region:
    """All but a sector at the left and one at the right, both a little turned."""
    down, right = np.ogrid[: shape[0], : shape[1]]
    angle = np.arctan2(down - (shape[0] - 1) / 2, right - (shape[1] - 1) / 2)
    angle -= rng.normal(0, LEANING)
    left, other = rng.uniform(0, OPENING, 2)
    opening = np.where(np.cos(angle) > 0, other, left)
    return np.asarray(np.abs(np.arcsin(np.sin(angle))) >= opening)
