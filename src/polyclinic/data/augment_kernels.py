"""Moving a batch: every image is moved, normalised and given its look in one pass."""

from typing import Any

import numba
import numpy as np

HALF = np.float32(0.5)
ONE = np.float32(1)


@numba.njit(parallel=True, cache=True)
def move(
    images: Any,
    labels: Any,
    views: Any,
    index: Any,
    maps: Any,
    centres: Any,
    beyond: Any,
    offset: Any,
    scale: Any,
    moved: Any,
    marks: Any,
    seen: Any,
    alter: Any,
    looks: Any,
) -> None:  # pragma: no cover (compiled)
    """Fill `moved` (B×H×W×C) and `marks` (B×H×W) with the cases at `index` of N×C×H×W and N×H×W.

    Row b of `centres` is where the middle comes from, right and down. Where there are `views`
    (N×H×W, else empty) `seen` is filled like `marks`.

    Row b of `maps` takes a pixel's offset from the centre (right, down) to where the pixel comes
    from: right from right, right from down, down from right, down from down. Images are bilinear
    with `beyond[b]` (C values) around them and then normalised, labels nearest with `marks` left
    around them. While an image is at hand `alter` gives it its look, number b of the arrays
    `looks`, if these are not empty.
    """
    blurs, nodes, noises, seeds, curves, lows, spans = looks
    for b in numba.prange(len(moved)):
        n = index[b]
        _mark(labels[n], maps[b], centres[b], marks[b])
        if views.size:
            _mark(views[n], maps[b], centres[b], seen[b])
        _fetch(images[n], maps[b], centres[b], beyond[b], offset[b], scale[b], moved[b])
        if blurs.size:
            alter(moved[b], blurs[b], nodes[b], noises[b], seeds[b], curves[b], lows[b], spans[b])


@numba.njit
def _mark(label: Any, maps: Any, centre: Any, marks: Any) -> None:  # pragma: no cover (compiled)
    high, wide = marks.shape
    for y in range(high):
        u, v = _start(y, high, maps, centre)
        _mark_line(label, maps[0], maps[2], u, v, HALF * np.float32(wide - 1), marks[y])


@numba.njit
def _fetch(
    image: Any, maps: Any, centre: Any, beyond: Any, offset: Any, scale: Any, moved: Any
) -> None:  # pragma: no cover (compiled)
    high, wide, _ = moved.shape
    centre_x = HALF * np.float32(wide - 1)
    across, up = maps[0], maps[2]  # steps of one pixel to the right
    whole = across == np.floor(across) and up == np.floor(up)
    for y in range(high):
        u, v = _start(y, high, maps, centre)
        if whole:
            _copy_line(image, across, up, u, v, centre_x, moved[y])
        else:
            _blend_line(image, across, up, u, v, centre_x, beyond, moved[y])
        _normalise(moved[y], offset, scale)


@numba.njit
def _start(y: Any, high: Any, maps: Any, centre: Any) -> Any:  # pragma: no cover (compiled)
    """Where line y would start if x began at the centre."""
    down = np.float32(y) - HALF * np.float32(high - 1)
    return maps[1] * down + centre[0], maps[3] * down + centre[1]


@numba.njit
def _normalise(line: Any, offset: Any, scale: Any) -> None:  # pragma: no cover (compiled)
    for k in range(line.shape[1]):
        for x in range(line.shape[0]):
            line[x, k] = (line[x, k] - offset[k]) / scale[k]


@numba.njit
def _mark_line(
    label: Any, across: Any, up: Any, u: Any, v: Any, centre: Any, marks: Any
) -> None:  # pragma: no cover (compiled)
    high, wide = np.uint32(label.shape[0]), np.uint32(label.shape[1])
    for x in range(marks.size):
        right = np.float32(x) - centre
        column = np.uint32(np.int32(np.floor(u + across * right + HALF)))
        row = np.uint32(np.int32(np.floor(v + up * right + HALF)))
        if column < wide and row < high:  # below zero they are huge
            marks[x] = label[row, column]


@numba.njit
def _copy_line(
    image: Any, across: Any, up: Any, u: Any, v: Any, centre: Any, line: Any
) -> None:  # pragma: no cover (compiled)
    for k in range(line.shape[1]):
        plane = image[k]
        for x in range(line.shape[0]):
            right = np.float32(x) - centre
            column, row = np.uint32(u + across * right), np.uint32(v + up * right)
            line[x, k] = plane[row, column]


@numba.njit
def _blend_line(
    image: Any, across: Any, up: Any, u: Any, v: Any, centre: Any, beyond: Any, line: Any
) -> None:  # pragma: no cover (compiled)
    _, high, wide = image.shape
    for x in range(line.shape[0]):
        right = np.float32(x) - centre
        place_x, place_y = u + across * right, v + up * right
        left, top = np.floor(place_x), np.floor(place_y)
        a, c = place_x - left, place_y - top
        column, row = int(left), int(top)
        if 0 <= column < wide - 1 and 0 <= row < high - 1:
            i, j = np.uint32(row), np.uint32(column)
            for k in range(line.shape[1]):
                above = (ONE - a) * image[k, i, j] + a * image[k, i, j + np.uint32(1)]
                i1 = i + np.uint32(1)
                below = (ONE - a) * image[k, i1, j] + a * image[k, i1, j + np.uint32(1)]
                line[x, k] = (ONE - c) * above + c * below
        elif -1 <= column < wide and -1 <= row < high:
            for k in range(line.shape[1]):
                above = (ONE - a) * _value(image[k], row, column, beyond[k])
                above += a * _value(image[k], row, column + 1, beyond[k])
                below = (ONE - a) * _value(image[k], row + 1, column, beyond[k])
                below += a * _value(image[k], row + 1, column + 1, beyond[k])
                line[x, k] = (ONE - c) * above + c * below
        else:
            for k in range(line.shape[1]):
                line[x, k] = beyond[k]


@numba.njit
def _value(plane: Any, row: Any, column: Any, around: Any) -> Any:  # pragma: no cover (compiled)
    if 0 <= row < plane.shape[0] and 0 <= column < plane.shape[1]:
        return np.float32(plane[row, column])
    return around
