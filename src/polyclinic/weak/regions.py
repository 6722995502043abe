"""How deep pixels lie within a region, and a region's connected parts."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from polyclinic.weak.style import Region

Depth = NDArray[np.float32]  # H×W
Window = tuple[slice, slice]
EIGHT = np.ones((3, 3), dtype=bool)  # pixels that touch at a corner are neighbours


def depth(region: Region, *, edge: bool = True) -> Depth:
    """Distance of the region's pixels to the nearest one outside, 0 elsewhere.

    With `edge`, outside begins beyond the array's border too; without, and with nothing outside,
    all pixels are equally deep.
    """
    if edge:
        return depth(np.pad(region, 1), edge=False)[1:-1, 1:-1]
    if region.all():
        return np.ones(region.shape, np.float32)
    return ndimage.distance_transform_edt(region).astype(np.float32)


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
    if several:
        numbers, count = ndimage.label(region, EIGHT)
        windows = ndimage.find_objects(numbers, count)
    else:
        numbers = region.astype(np.int32)
        windows = [_bounds(region)] if region.any() else []
    for number, window in enumerate(windows, 1):
        rows, columns = (slice(max(0, axis.start - around), axis.stop + around) for axis in window)
        yield (rows, columns), numbers[rows, columns] == number


def _bounds(region: Region) -> Window:
    rows, columns = (np.flatnonzero(region.any(axis=axis)).tolist() for axis in (1, 0))
    return slice(rows[0], rows[-1] + 1), slice(columns[0], columns[-1] + 1)


def without_holes(region: Region) -> Region:
    """The region and all that it encloses; what touches the array's border is not enclosed."""
    outside, _ = ndimage.label(np.pad(~region, 1, constant_values=True))
    return np.asarray(outside[1:-1, 1:-1] != outside[0, 0])
