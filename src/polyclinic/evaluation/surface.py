"""Distances between the surfaces of two masks, compiled on first use and then kept on disk.

A surface is made of the pixels of a mask with a direct neighbour (4 in 2D, 6 in 3D) outside the
mask; what lies beyond the image counts as outside.
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray

Mask = NDArray[np.bool_]
Floats = NDArray[np.float64]
Steps = NDArray[np.int32]


def surface_distances(first: Mask, second: Mask, spacing: tuple[float, ...]) -> Floats:
    """Distance of each surface pixel of the first mask, then of the second, to the other surface.

    Both masks are 2D or 3D and hold at least one pixel; the spacing has a number for each axis.
    """
    window = _window(first | second)
    here, there = (_volume(surface(mask[window])) for mask in (first, second))
    sizes = np.array((1.0,) * (3 - len(spacing)) + spacing)
    return np.concatenate(
        [
            _nearest(np.flatnonzero(here), there, sizes),
            _nearest(np.flatnonzero(there), here, sizes),
        ]
    )


def surface(mask: Mask) -> Mask:
    """The pixels of a mask that touch its outside."""
    inside = mask.copy()
    for axis in range(mask.ndim):
        kept, neighbours = inside.swapaxes(0, axis), mask.swapaxes(0, axis)
        kept[1:] &= neighbours[:-1]
        kept[:-1] &= neighbours[1:]
        kept[0] = kept[-1] = False
    return mask ^ inside


def _window(mask: Mask) -> tuple[slice, ...]:
    """The smallest box around all pixels of a mask: no surface lies outside it."""
    axes = range(mask.ndim)
    filled = (mask.any(axis=tuple(other for other in axes if other != axis)) for axis in axes)
    ends = (np.flatnonzero(line)[[0, -1]].tolist() for line in filled)
    return tuple(slice(first, last + 1) for first, last in ends)


def _volume(surface: Mask) -> Mask:
    """A flat surface as a volume of one slice, so that one compiled function serves 2D and 3D."""
    return surface.reshape((1,) * (3 - surface.ndim) + surface.shape)


@njit(cache=True, nogil=True)
def _nearest(places: NDArray[np.intp], surface: Mask, spacing: Floats) -> Floats:
    """Distance from each place (flat index into the volume) to the nearest pixel of a surface."""
    depth, height, width = surface.shape
    rows_away = _rows_away(surface)
    squares = (np.arange(height + 1) * spacing[1]) ** 2
    squares[height] = np.inf  # stands for a column without surface
    distances = np.empty(places.size)
    for index in range(places.size):
        z, place = divmod(places[index], height * width)
        y, x = divmod(place, width)
        best = np.inf
        for slices_away in range(depth):
            square = (slices_away * spacing[0]) ** 2
            if square >= best:
                break
            if z >= slices_away:
                best = _scan(rows_away[z - slices_away, y], x, squares, spacing[2], square, best)
            if 0 < slices_away < depth - z:
                best = _scan(rows_away[z + slices_away, y], x, squares, spacing[2], square, best)
        distances[index] = np.sqrt(best)
    return distances


@njit(cache=True, nogil=True)
def _scan(
    rows_away: Steps, x: int, squares: Floats, spacing: float, so_far: float, best: float
) -> float:
    """The smaller of `best` and the nearest squared distance that a row of columns offers.

    Looks left and right of x only as far as that can still help.
    """
    width = rows_away.size
    for columns_away in range(width):
        square = so_far + (columns_away * spacing) ** 2
        if square >= best:
            break
        if x >= columns_away:
            best = min(best, square + squares[rows_away[x - columns_away]])
        if x + columns_away < width:
            best = min(best, square + squares[rows_away[x + columns_away]])
    return best


@njit(cache=True, nogil=True)
def _rows_away(surface: Mask) -> Steps:
    """Rows to the nearest surface pixel of the same column; the height where there is none."""
    depth, height, width = surface.shape
    rows_away = np.empty(surface.shape, np.int32)
    for z in range(depth):
        for x in range(width):
            rows_away[z, 0, x] = 0 if surface[z, 0, x] else height
        for y in range(1, height):
            _from_above(rows_away[z, y], rows_away[z, y - 1], surface[z, y], height)
        for y in range(height - 2, -1, -1):
            _from_below(rows_away[z, y], rows_away[z, y + 1])
    return rows_away


# Functions of their own because they take half the time of the same lines in the loops above.
@njit(cache=True, nogil=True)
def _from_above(here: Steps, above: Steps, surface: Mask, height: int) -> None:
    for x in range(here.size):
        here[x] = 0 if surface[x] else min(above[x] + 1, height)


@njit(cache=True, nogil=True)
def _from_below(here: Steps, below: Steps) -> None:
    for x in range(here.size):
        here[x] = min(here[x], below[x] + 1)
