"""Sums over windows weighted by closeness and likeness, compiled and kept on disk.

Rows are worked on as a whole by loops simple enough for the compiler to turn into vector code;
each pair of pixels is met once and serves both.
"""

import math
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

Reals = NDArray[Any]  # float32 or float64
Singles = NDArray[np.float32]

ROUNDING = np.float32(3 << 22)  # a float32 this large has no bits left for fractions
PER_LOG_TWO = np.float32(1 / math.log(2))
LOG_TWO = np.float32(0.693359375)  # few bits, so that small multiples of it are exact
LOG_TWO_REST = np.float32(math.log(2) - 0.693359375)
LOWEST = np.float32(-87.0)  # exp of it is nearly the smallest normal number
TERMS = tuple(np.float32(1 / math.factorial(power)) for power in range(7))
BIAS, FRACTION = 127, 23  # of the bits of a float32


@njit(cache=True, nogil=True, fastmath={"contract"})
def window_sums(image: Reals, closeness: Reals, values: Reals, sums: Reals) -> None:
    """Fill `sums` with every pixel's neighbours' values (K×H×W), weighted, without its own.

    The weight is closeness (radius+1 × 2·radius+1, the lower half of the window) times
    exp(−d²), with d the distance of the two pixels of the image (C×H×W).
    """
    _, height, width = image.shape
    radius = len(closeness) - 1
    weights = np.empty(width, image.dtype)
    powers = np.empty(width, np.float32)
    bits = powers.view(np.int32)
    sums[:] = 0
    for row in range(height):
        for down in range(min(radius + 1, height - row)):
            first = max(-radius, 1 - width) if down else 1
            for right in range(first, min(radius, width - 1) + 1):
                start, stop = max(0, -right), min(width, width - right)
                here, there = slice(start, stop), slice(start + right, stop + right)
                weight = weights[: stop - start]
                weight[:] = 0
                for channel in range(len(image)):
                    _add_squares(
                        weight, image[channel, row, here], image[channel, row + down, there]
                    )
                if image.itemsize == 4:
                    _decay_single(weight, powers[: stop - start], bits[: stop - start])
                else:
                    _decay_double(weight)
                _scale(weight, closeness[down, right + radius])
                for channel in range(len(values)):
                    _add(sums[channel, row, here], weight, values[channel, row + down, there])
                    _add(sums[channel, row + down, there], weight, values[channel, row, here])


@njit(cache=True, nogil=True, fastmath={"contract"})
def _add_squares(squares: Reals, near: Reals, far: Reals) -> None:
    for x in range(squares.size):
        difference = near[x] - far[x]
        squares[x] += difference * difference


@njit(cache=True, nogil=True)
def _decay_double(squares: Reals) -> None:
    for x in range(squares.size):
        squares[x] = math.exp(-squares[x])


@njit(cache=True, nogil=True, fastmath={"contract"})
def _decay_single(squares: Singles, powers: Singles, bits: NDArray[np.int32]) -> None:
    """Replace squares by exp(−square), to 2e-7 of it; powers and bits are the same memory.

    exp(x) = 2ⁿ·exp(r) with the whole number n next to x/log 2. The compiler turns these loops,
    but not the library's exp, into vector code.
    """
    for x in range(squares.size):
        exponent = max(-squares[x], LOWEST)
        shifted = exponent * PER_LOG_TWO + ROUNDING
        whole = shifted - ROUNDING
        rest = (exponent - whole * LOG_TWO) - whole * LOG_TWO_REST
        powers[x] = shifted
        squares[x] = _exponential_series(rest)
    for x in range(squares.size):
        bits[x] = (bits[x] << FRACTION) + (BIAS << FRACTION)  # n is in the lowest bits
    for x in range(squares.size):
        squares[x] *= powers[x]


@njit(cache=True, nogil=True, fastmath={"contract"})
def _exponential_series(x: np.float32) -> np.floating[Any]:
    sixth = TERMS[4] + x * (TERMS[5] + x * TERMS[6])
    return TERMS[0] + x * (TERMS[1] + x * (TERMS[2] + x * (TERMS[3] + x * sixth)))


@njit(cache=True, nogil=True)
def _scale(weights: Reals, factor: float) -> None:
    for x in range(weights.size):
        weights[x] *= factor


@njit(cache=True, nogil=True, fastmath={"contract"})
def _add(sums: Reals, weights: Reals, values: Reals) -> None:
    for x in range(sums.size):
        sums[x] += weights[x] * values[x]
