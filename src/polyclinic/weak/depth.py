"""How deep pixels lie within a region, and a region's connected parts."""

from collections.abc import Iterator

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy import ndimage

from polyclinic.weak.style import Region

Depth = NDArray[np.float32]
Window = tuple[slice, slice]
EIGHT = np.ones((3, 3), dtype=bool)  # pixels that touch at a corner are neighbours


def depth(region: Region, *, edge: bool = True) -> Depth:
    """Distance of the region's pixels to the nearest one outside, 0 elsewhere.

    With `edge`, outside begins beyond the array's border too; without, and with nothing outside,
    all pixels are equally deep.
    """
    if edge:
        return _distances(np.pad(region, 1))[1:-1, 1:-1]
    return np.ones(region.shape, np.float32) if region.all() else _distances(region)


def square_depth(region: Region) -> Depth:
    """The same without an edge, and as a king walks on a chessboard."""
    if region.all():
        return np.ones(region.shape, np.float32)
    return ndimage.distance_transform_cdt(region, "chessboard").astype(np.float32)


def deepest(region: Region) -> tuple[int, int]:
    """Row and column of a deepest pixel of a region that has one, the first of several."""
    row, column = divmod(int(depth(region).argmax()), region.shape[1])
    return row, column


def parts(region: Region, *, several: bool, around: int = 0) -> Iterator[tuple[Window, Region]]:
    """Each connected part, or all as one: the window of the image that holds it, and it therein.

    The window has `around` pixels more on each side as far as the image goes.
    """
    numbers, count = ndimage.label(region, EIGHT) if several else (region.astype(np.int32), 1)
    for number, found in enumerate(ndimage.find_objects(numbers, count), 1):
        if found is not None:
            rows, columns = (
                slice(max(0, axis.start - around), axis.stop + around) for axis in found
            )
            yield (rows, columns), numbers[rows, columns] == number


def without_holes(region: Region) -> Region:
    """The region and all that it encloses; what touches the array's border is not enclosed."""
    outside, _ = ndimage.label(np.pad(~region, 1, constant_values=True))
    return np.asarray(outside[1:-1, 1:-1] != outside[0, 0])


@njit(cache=True, nogil=True)
def _distances(region: Region) -> Depth:
    """Exact Euclidean distances: along columns first, then for each row the lowest parabolas."""
    height, width = region.shape
    squares = _rows_away(region) ** 2
    distances = np.empty((height, width), np.float32)
    nearest = np.empty(width, np.int64)  # columns whose parabolas are lowest somewhere
    begins = np.empty(width, np.int64)  # the column from which on each of them is
    for y in range(height):
        row = squares[y]
        last = 0
        nearest[0] = begins[0] = 0
        for x in range(1, width):
            while last >= 0 and _parabola(row, nearest[last], begins[last]) > _parabola(
                row, x, begins[last]
            ):
                last -= 1
            if last < 0:
                last, nearest[0] = 0, x
                continue
            other = nearest[last]
            crossing = 1 + (x * x - other * other + row[x] - row[other]) // (2 * (x - other))
            if crossing < width:
                last += 1
                nearest[last], begins[last] = x, crossing
        for x in range(width - 1, -1, -1):
            distances[y, x] = np.sqrt(_parabola(row, nearest[last], x))
            if x == begins[last]:
                last -= 1
    return distances


@njit(cache=True, nogil=True)
def _parabola(row: NDArray[np.int64], middle: int, x: int) -> int:
    return (x - middle) ** 2 + row[middle]


@njit(cache=True, nogil=True)
def _rows_away(region: Region) -> NDArray[np.int64]:
    """Rows to the nearest pixel outside in the same column; more than any where there is none."""
    height, width = region.shape
    away = np.empty((height, width), np.int64)
    for x in range(width):
        away[0, x] = height + width if region[0, x] else 0
    for y in range(1, height):
        for x in range(width):
            away[y, x] = away[y - 1, x] + 1 if region[y, x] else 0
    for y in range(height - 2, -1, -1):
        for x in range(width):
            away[y, x] = min(away[y, x], away[y + 1, x] + 1)
    return away
