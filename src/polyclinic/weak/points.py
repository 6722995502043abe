"""Points: four dabs of a small brush for each object, and four of background around it."""

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from polyclinic.masks import UNLABELLED, Mask
from polyclinic.weak.regions import Window, parts
from polyclinic.weak.style import Region, Style, foreground, side_of

Bounds = NDArray[np.float64]  # top, bottom, left, right: the first and last rows and columns
Place = tuple[int, int]  # row and column
OUTWARDS = np.array([-1.0, 1.0, -1.0, 1.0])


def points(mask: Mask, _: np.random.Generator, style: Style) -> Mask:
    """Dabs at the middles of the sides of each object's shrunken box, and of its grown one.

    Where another outline lies within an object's, as the cup within the disc, they are midway.
    """
    label = np.full_like(mask, UNLABELLED)
    side = side_of(mask)
    reach = dab_reach(style.dot * side)
    background = mask == 0
    for number in foreground(mask):
        outline = style.outlined(mask, number)
        for window, part in parts(outline, several=style.several):
            region = part & (mask[window] == number)
            if region.any():
                bounds = _within(part, part & ~region, style.inset)
                _draw_dabs(label[window], _sides(bounds), reach, number, region)
    objects = (mask != 0) & (mask != UNLABELLED)
    for window, _part in parts(objects, several=style.several):
        around = _sides(_bounds(window) + style.around * side * OUTWARDS)
        high, wide = mask.shape
        within = [(y, x) for y, x in around if 0 <= y < high and 0 <= x < wide and background.any()]
        _draw_dabs(label, within, reach, 0, background)
    return label


def _sides(bounds: Bounds) -> list[Place]:
    """The pixels in the middles of the four sides: above, below, left, right."""
    top, bottom, left, right = (round(value) for value in bounds.tolist())
    row, column = (top + bottom) // 2, (left + right) // 2
    return [(top, column), (bottom, column), (row, left), (row, right)]


def dab_reach(length: float) -> int:
    """The reach in whole pixels of the dab whose area comes nearest to that of a wished reach."""
    area = 13 / 4 * length**2  # 13 pixels for the published reach of 2, and fewer as images shrink

    def off(reach: int) -> float:
        return abs(math.log((2 * reach * (reach + 1) + 1) / area))

    return min(range(int(length) + 2), key=off)


def draw_dab(label: Mask, place: Place, reach: int, number: int, within: Region) -> None:
    """Draw a diamond of the class `number`, as far as the image goes and within the region."""
    rows, columns = (slice(max(0, each - reach), max(0, each + reach + 1)) for each in place)
    down, right = np.ogrid[rows, columns]
    diamond = np.abs(down - place[0]) + np.abs(right - place[1]) <= reach
    there = label[rows, columns]
    diamond = diamond[: there.shape[0], : there.shape[1]]
    there[diamond & within[rows, columns]] = number


def _draw_dabs(
    label: Mask, places: Iterable[Place], reach: int, number: int, region: Region
) -> None:
    """Dabs within the region; a place outside of it moves to the region's nearest pixel."""
    for place in places:
        draw_dab(label, place if region[place] else _nearest(region, place), reach, number, region)


def _within(part: Region, inner: Region, inset: float) -> Bounds:
    whole = (slice(0, part.shape[0]), slice(0, part.shape[1]))
    outer = _bounds(whole)
    if not inner.any():
        middle = np.repeat((outer[::2] + outer[1::2]) / 2, 2)
        return middle + inset * (outer - middle)
    ((window, _),) = parts(inner, several=False)
    return (outer + _bounds(window)) / 2


def _bounds(window: Window) -> Bounds:
    rows, columns = window
    return np.array([rows.start, rows.stop - 1, columns.start, columns.stop - 1], dtype=np.float64)


def _nearest(region: Region, place: Place) -> Place:
    found = np.argwhere(region)
    row, column = found[((found - place) ** 2).sum(axis=1).argmin()].tolist()
    return row, column
