"""Resizing as two matrix products, which an exported model can do just as well.

A pixel of the result is a weighted mean of the pixels below a triangle around its centre, as wide
as one pixel of the result (antialiased) and never narrower than one of the original (bilinear).
"""

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyclinic.masks import UNLABELLED, Mask

Array = NDArray[Any]
Size = tuple[int, int]  # rows and columns
BAND = 16  # rows computed together


@lru_cache(maxsize=64)
def triangle_weights(length: int, new: int) -> Array:
    """New×length float32: what each of `length` pixels counts in each of the `new` ones."""
    scale = length / new
    centres = (np.arange(new) + 0.5) * scale
    distances = np.abs(np.arange(length) + 0.5 - centres[:, None]) / max(1.0, scale)
    weights = np.clip(1 - distances, 0, None)
    return (weights / weights.sum(axis=1, keepdims=True)).astype(np.float32)


def resized_image(image: Array, size: Size) -> Array:
    """C×H×W of this size, the very same array where it has it already.

    Floats stay float32; of 8 bits every value is rounded to the nearest, halves to the even one.
    """
    if image.shape[1:] == size:
        return image
    pixels = _with_rows(image, size[0])
    pixels = _with_rows(pixels.transpose(0, 2, 1), size[1]).transpose(0, 2, 1)
    if image.dtype == np.uint8:
        return np.ascontiguousarray(np.rint(pixels), dtype=np.uint8)
    return np.ascontiguousarray(pixels, dtype=np.float32)


def resized_mask(mask: Mask, size: Size) -> Mask:
    """H×W of this size, each pixel the nearest one's class."""
    if mask.shape == size:
        return mask
    rows, columns = (
        (2 * np.arange(new) + 1) * length // (2 * new)  # whole numbers know no ties
        for length, new in zip(mask.shape, size, strict=True)
    )
    return np.ascontiguousarray(mask[np.ix_(rows, columns)])


def resized_label(label: Mask, size: Size) -> Mask:
    """H×W of this size: as a mask, but no mark of an annotator's vanishes.

    Where something is drawn and no pixel of its class is left at its place or beside it, such as a
    point or the thin part of a stroke, one is put there if the place is still unlabelled.
    """
    small = resized_mask(label, size)
    if small is label or not (small == UNLABELLED).any():
        return small
    high, wide = size
    rows, columns = np.nonzero(label != UNLABELLED)
    drawn = label[rows, columns]
    places = rows * high // label.shape[0] * wide + columns * wide // label.shape[1]
    for number in np.unique(drawn):
        counts = np.bincount(places[drawn == number], minlength=small.size)
        counts[_near(small == number).ravel()] = 0
        for place in np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)].tolist():
            row, column = divmod(place, wide)
            around = small[max(0, row - 1) : row + 2, max(0, column - 1) : column + 2]
            if small[row, column] == UNLABELLED and not (around == number).any():
                small[row, column] = number
    return small


def _near(region: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """The region and the eight neighbours of each of its pixels."""
    high, wide = region.shape
    wider = np.pad(region, 1)
    shifts = [wider[top : top + high, left : left + wide] for top in range(3) for left in range(3)]
    return np.logical_or.reduce(shifts)


def _with_rows(image: Array, new: int) -> Array:
    """C×new×W floats of C×H×W: weights times pixels."""
    if image.shape[1] == new:
        return image
    weights = triangle_weights(image.shape[1], new)
    resized = np.empty((image.shape[0], new, image.shape[2]), dtype=np.float32)
    # In bands, because nearly all weights of a band are zero.
    for first in range(0, new, BAND):
        rows = weights[first : first + BAND]
        counted = np.flatnonzero(rows.any(axis=0))
        near = slice(counted[0], counted[-1] + 1)
        resized[:, first : first + BAND] = rows[:, near] @ image[:, near].astype(np.float32)
    return resized
