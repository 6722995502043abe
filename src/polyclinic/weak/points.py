"""Points: four dabs of a small brush for each object, and four of background around it."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from polyclinic.weak.depth import Window, parts
from polyclinic.weak.style import UNLABELLED, Mask, Region, Style, foreground, side_of

Bounds = NDArray[np.float64]  # top, bottom, left, right: the first and last rows and columns
OUTWARDS = np.array([-1.0, 1.0, -1.0, 1.0])


def points(mask: Mask, _: np.random.Generator, style: Style) -> Mask:
    """Dabs at the middles of the sides of each object's shrunken box, and of its grown one.

    Where another outline lies within an object's, as the cup within the disc, they are midway.
    """
    label = np.full_like(mask, UNLABELLED)
    side = side_of(mask)
    reach = dab_reach(style.dot * side)
    for number in foreground(mask):
        outline = np.isin(mask, style.outline(number))
        for window, part in parts(outline, several=style.several):
            region = part & (mask[window] == number)
            if region.any():
                bounds = _within(part, part & ~region, style.inset)
                draw_dabs(label[window], region, sides(bounds), number, reach)
    objects = (mask != 0) & (mask != UNLABELLED)
    for window, _part in parts(objects, several=style.several):
        around = [place for place in sides(_bounds(window) + style.around * side * OUTWARDS)]
        draw_dabs(label, mask == 0, [each for each in around if _inside(each, mask)], 0, reach)
    return label


def sides(bounds: Bounds) -> list[tuple[int, int]]:
    """The pixels in the middles of the four sides: above, below, left, right."""
    top, bottom, left, right = (round(value) for value in bounds.tolist())
    row, column = (top + bottom) // 2, (left + right) // 2
    return [(top, column), (bottom, column), (row, left), (row, right)]


def dab_reach(length: float) -> int:
    """The reach in whole pixels of the dab whose area is nearest to that of a wished reach."""
    area = _area(length)
    return min(range(int(length) + 2), key=lambda reach: abs(np.log(_area(reach) / area)))


def draw_dabs(
    label: Mask, region: Region, places: Iterable[tuple[int, int]], number: int, reach: int
) -> None:
    """Draw diamonds of the class `number` that reach so far, and only within the region.

    A place outside the region moves to the region's nearest pixel.
    """
    for place in places:
        row, column = place if region[place] else _nearest(region, place)
        top, left = max(0, row - reach), max(0, column - reach)
        window = slice(top, row + reach + 1), slice(left, column + reach + 1)
        rows, columns = np.ogrid[window]
        rows, columns = rows[: len(label) - top], columns[:, : label.shape[1] - left]
        diamond = abs(rows - row) + abs(columns - column) <= reach
        label[window][diamond & region[window]] = number


def _area(reach: float) -> float:
    return 2 * reach * (reach + 1) + 1


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


def _inside(place: tuple[int, int], mask: Mask) -> bool:
    return 0 <= place[0] < mask.shape[0] and 0 <= place[1] < mask.shape[1]


def _nearest(region: Region, place: tuple[int, int]) -> tuple[int, int]:
    found = np.argwhere(region)
    row, column = found[((found - place) ** 2).sum(axis=1).argmin()].tolist()
    return row, column
