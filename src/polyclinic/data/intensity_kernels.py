"""Other looks of images, compiled and in place."""

from functools import cache
from typing import Any

import numba
import numpy as np
from numba import types

STEPS = 256
DEVIATION = np.float32((4 * (256**2 - 1) / 12) ** 0.5)  # of the sum of four random bytes
_NUMBER = types.float32
_LOOK = types.void(  # an image and its `Looks`
    types.Array(_NUMBER, 3, "C"),
    *(_NUMBER, types.int64, _NUMBER, types.int64),
    *(types.Array(_NUMBER, 1, "C"), _NUMBER, _NUMBER),
)


@cache
def alteration(*, any_look: bool) -> Any:
    """The function that changes the look of an H×W×C image; without any it does nothing.

    Both have one type and `move` calls them by their address. So it is compiled once for both, and
    what changes looks once for all types of image, where it is needed.
    """
    return numba.cfunc(_LOOK, cache=True)(_alter if any_look else _leave)


def _leave(
    image: Any, blur: Any, nodes: Any, noise: Any, seed: Any, curve: Any, low: Any, span: Any
) -> None:  # pragma: no cover (compiled)
    pass


def _alter(
    image: Any, blur: Any, nodes: Any, noise: Any, seed: Any, curve: Any, low: Any, span: Any
) -> None:  # pragma: no cover (compiled)
    if blur > 0:
        _blur(image, blur)
    if nodes > 0:
        _coarsen(image, nodes)
    _recolour(image.reshape(-1), noise, seed, curve, low, span)


@numba.njit
def _recolour(
    values: Any, noise: Any, seed: Any, curve: Any, low: Any, span: Any
) -> None:  # pragma: no cover (compiled)
    for i in range(values.size):
        share = (values[i] - low) / span
        if noise > 0:
            share += noise / DEVIATION * np.float32(_four_bytes(i, seed))
        place = min(max(share * np.float32(STEPS), np.float32(0)), np.float32(STEPS))
        below: Any = min(np.int32(place), STEPS - 1)
        values[i] = curve[below] + (place - np.float32(below)) * (curve[below + 1] - curve[below])


@numba.njit
def _four_bytes(number: Any, seed: Any) -> Any:  # pragma: no cover (compiled)
    mixed = np.uint32(np.uint32(number) * np.uint32(0x9E3779B1)) ^ np.uint32(seed)
    mixed = np.uint32((mixed ^ (mixed >> np.uint32(16))) * np.uint32(0x85EBCA6B))
    mixed = np.uint32((mixed ^ (mixed >> np.uint32(13))) * np.uint32(0xC2B2AE35))
    mixed = mixed ^ (mixed >> np.uint32(16))
    first = (mixed & np.uint32(255)) + ((mixed >> np.uint32(8)) & np.uint32(255))
    second = ((mixed >> np.uint32(16)) & np.uint32(255)) + (mixed >> np.uint32(24))
    return np.int32(first + second) - np.int32(510)


@numba.njit
def _blur(image: Any, deviation: Any) -> None:  # pragma: no cover (compiled)
    high, wide, channels = image.shape
    radius = min(int(np.ceil(2 * deviation)), min(high, wide) - 1)
    taps = np.exp(-0.5 * (np.arange(-radius, radius + 1) / deviation) ** 2)
    taps = (taps / taps.sum()).astype(np.float32)
    rows = image.reshape(high, wide * channels)
    down = np.zeros((high, wide * channels), dtype=np.float32)
    for y in range(high):
        for t in range(-radius, radius + 1):
            weight, row = taps[t + radius], rows[_reflected(y + t, high)]
            for x in range(wide * channels):
                down[y, x] += weight * row[x]
    line = np.empty((wide + 2 * radius) * channels, dtype=np.float32)
    for y in range(high):
        for x in range(-radius, wide + radius):
            for k in range(channels):
                line[(x + radius) * channels + k] = down[y, _reflected(x, wide) * channels + k]
        rows[y, :] = 0
        for t in range(2 * radius + 1):
            weight, shift = taps[t], t * channels
            for x in range(wide * channels):
                rows[y, x] += weight * line[x + shift]


@numba.njit
def _reflected(place: Any, length: Any) -> Any:  # pragma: no cover (compiled)
    place = abs(place)
    return 2 * (length - 1) - place if place >= length else place


@numba.njit
def _coarsen(image: Any, nodes: Any) -> None:  # pragma: no cover (compiled)
    high, wide, channels = image.shape
    small = np.empty((nodes, nodes, channels), dtype=np.float32)
    for i in range(nodes):
        for j in range(nodes):
            for k in range(channels):
                row, column = (2 * i + 1) * high // (2 * nodes), (2 * j + 1) * wide // (2 * nodes)
                small[i, j, k] = image[row, column, k]
    left = np.empty(wide, dtype=np.int64)
    part = np.empty(wide, dtype=np.float32)
    for x in range(wide):
        place = max(np.float32(0), np.float32((x + 0.5) * nodes / wide - 0.5))
        left[x] = min(int(place), nodes - 1)
        part[x] = place - np.float32(left[x])
    line = np.empty((nodes, channels), dtype=np.float32)
    for y in range(high):
        place = max(np.float32(0), np.float32((y + 0.5) * nodes / high - 0.5))
        top = min(int(place), nodes - 1)
        below, share = min(top + 1, nodes - 1), place - np.float32(top)
        for j in range(nodes):
            for k in range(channels):
                line[j, k] = small[top, j, k] + share * (small[below, j, k] - small[top, j, k])
        for x in range(wide):
            right = min(left[x] + 1, nodes - 1)
            for k in range(channels):
                image[y, x, k] = line[left[x], k] + part[x] * (line[right, k] - line[left[x], k])
