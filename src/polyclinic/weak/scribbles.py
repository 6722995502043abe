"""Scribbles: a stroke along the inside of each object, and one around all of them."""

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from polyclinic.weak.boxes import find_boxes
from polyclinic.weak.depth import depth, parts, without_holes
from polyclinic.weak.hand import hills
from polyclinic.weak.style import UNLABELLED, Mask, Region, Style, foreground, side_of

Level = NDArray[np.float32]  # H×W: pixels from the middle of a stroke, negative at its one side
DEEPEST = 0.42  # of the way from the edge to the middle of an object
ROOM = 1.3  # brush widths from edge to stroke, for a stroke to go round inside
TURN = 14.0  # most degrees by which the stroke around objects is turned
LEANING = 0.3  # radians, how far the openings of a stroke are off the horizontal
WIDEST_GAP = 1.2  # radians, half an opening
WOBBLE = 0.2  # brush widths that a hand is off by


def scribbles(mask: Mask, rng: np.random.Generator, style: Style) -> Mask:
    """Strokes of a hand that is not quite steady."""
    label = np.full_like(mask, UNLABELLED)
    brush = max(1.0, style.brush * side_of(mask))
    background = mask == 0
    if background.any():
        label[background & _stroke(_around(mask, rng, style), brush, rng)] = 0
    for number in foreground(mask):
        outline = np.isin(mask, style.outline(number))
        for window, part in parts(outline, several=style.several, around=1):
            region = part & (mask[window] == number)
            if region.any():
                label[window][_inside(part, region, rng, style, brush, side_of(mask))] = number
    return label


def ragged_scribbles(mask: Mask, rng: np.random.Generator, style: Style) -> Mask:
    """The same strokes by a nearly dry brush: thinner here and there, with gaps."""
    label = scribbles(mask, rng, style)
    brush = max(1.0, style.brush * side_of(mask))
    places = np.argwhere(label != UNLABELLED)
    moved = np.stack([hills(rng, places, mask.shape, brush * 1.2) for _ in range(2)], axis=1)
    bent = (places + (0.56 * brush * moved).round()).astype(np.intp)
    bent = bent.clip(0, np.array(mask.shape) - 1)
    kept = label[tuple(bent.T)] == label[tuple(places.T)]
    erased = hills(rng, places, mask.shape, brush * 3) > 2
    label[tuple(places[~kept | erased].T)] = UNLABELLED
    return label


def _around(mask: Mask, rng: np.random.Generator, style: Style) -> Level:
    """Midway between the objects and a frame that is a little turned."""
    objects = mask != 0
    shape, side = mask.shape, side_of(mask)
    if style.boxed:
        for each in find_boxes(mask, style):
            objects = objects | each.inside(shape, margin=style.halo * side)
    turn = np.radians(rng.uniform(-TURN, TURN))
    down, right = np.ogrid[: shape[0], : shape[1]]
    down, right = (axis.astype(np.float32) - (axis.size - 1) / 2 for axis in (down, right))
    sine, cosine = np.float32(np.sin(turn)), np.float32(np.cos(turn))
    rows, columns = np.abs(cosine * down - sine * right), np.abs(sine * down + cosine * right)
    high, wide = (style.frame * size / 2 for size in shape)
    to_frame = np.minimum(high - rows, wide - columns)
    level = (depth(~objects, edge=False) - to_frame) / 2
    level[objects] = -to_frame[objects]  # a frame across a grown box is no wider there
    return level


def _inside(
    part: Region, region: Region, rng: np.random.Generator, style: Style, brush: float, side: int
) -> Region:
    """A stroke around in a ring or in an object, or along the middle of one too thin for that."""
    whole = without_holes(part)
    edge = depth(whole)
    inner = whole & ~region
    if depth(inner).max() > brush:
        return region & _stroke((edge - depth(~inner, edge=False)) / 2, brush, rng)
    deepest = float(edge.max())
    level = min(rng.uniform(*style.depth) * side, DEEPEST * deepest)
    if level < ROOM * brush:
        ridge = edge >= ndimage.maximum_filter(edge, 3)
        return region & (depth(~ridge, edge=False) <= brush / 2)
    stroke = region & _stroke(edge - level, brush, rng)
    return stroke & _two_arcs(stroke.shape, rng) if style.arcs else stroke


def _two_arcs(shape: tuple[int, ...], rng: np.random.Generator) -> Region:
    """All but a sector at the left and one at the right, both a little turned."""
    down, right = np.ogrid[: shape[0], : shape[1]]
    turn = rng.normal(0, LEANING)
    angle = np.arctan2(down - (shape[0] - 1) / 2, right - (shape[1] - 1) / 2) - turn
    gaps = rng.uniform(0, WIDEST_GAP, 2)
    open_ = np.where(np.cos(angle) > 0, gaps[0], gaps[1])
    return np.asarray(np.abs(np.arcsin(np.sin(angle))) > open_)


def _stroke(level: Level, brush: float, rng: np.random.Generator) -> Region:
    """The pixels nearer to the middle than half the brush, give or take the hand's wobble."""
    stroke = np.abs(level) < brush
    places = np.argwhere(stroke)
    off = level[stroke] + WOBBLE * brush * hills(rng, places, level.shape, 4 * brush)
    stroke[stroke] = np.abs(off) < brush / 2
    return stroke
