"""Exact Euclidean distances, compiled on first use and then kept on disk."""

import numpy as np
from numba import njit
from numpy.typing import NDArray

from polyclinic.weak.style import Region

Depth = NDArray[np.float32]
Whole = NDArray[np.int64]


@njit(cache=True, nogil=True)
def distances(region: Region) -> Depth:
    """Distance of the region's pixels to the nearest one outside, of which there must be one.

    Along columns first. What they give is for each row a set of parabolas, the lowest of which is
    the squared distance: the linear algorithm of Meijster, Roerdink and Hesselink.
    """
    squares = _rows_away(region) ** 2
    found = np.empty(region.shape, np.float32)
    lowest, begins = np.empty(region.shape[1], np.int64), np.empty(region.shape[1], np.int64)
    for y in range(region.shape[0]):
        count = _envelope(squares[y], lowest, begins)
        for x in range(region.shape[1] - 1, -1, -1):
            found[y, x] = np.sqrt(_parabola(squares[y], lowest[count - 1], x))
            count -= x == begins[count - 1]
    return found


@njit(cache=True, nogil=True)
def _envelope(squares: Whole, lowest: Whole, begins: Whole) -> int:
    """How many parabolas are the lowest somewhere, their middles, and from which column on."""
    lowest[0] = begins[0] = 0
    count = 1
    for x in range(1, squares.size):
        while count and _is_below(squares, x, lowest[count - 1], begins[count - 1]):
            count -= 1
        begin = 0 if count == 0 else 1 + _crossing(squares, lowest[count - 1], x)
        if begin < squares.size:
            lowest[count], begins[count] = x, begin
            count += 1
    return count


@njit(cache=True, nogil=True)
def _is_below(squares: Whole, middle: int, other: int, x: int) -> bool:
    return _parabola(squares, middle, x) < _parabola(squares, other, x)


@njit(cache=True, nogil=True)
def _parabola(squares: Whole, middle: int, x: int) -> int:
    return (x - middle) ** 2 + squares[middle]


@njit(cache=True, nogil=True)
def _crossing(squares: Whole, left: int, right: int) -> int:
    """The last column in which the left parabola is not above the right one."""
    rise = right * right - left * left + squares[right] - squares[left]
    return rise // (2 * (right - left))


@njit(cache=True, nogil=True)
def _rows_away(region: Region) -> Whole:
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
