"""Where the tiles of a square lie, and how predictions of overlapping tiles become one.

Nothing here needs torch, so that prediction without it can use the same arithmetic.
"""

import numpy as np

from polyclinic.data.resizing import Array


def tile_starts(side: int, tile: int, overlap: float) -> list[int]:
    """Where tiles begin along one axis: evenly, from end to end, at least `overlap` of a tile each.

    A tile as large as the side, or no tile (0), is one that begins at 0.
    """
    if not 0 < tile < side:
        return [0]
    step = max(1, int(tile * (1 - overlap)))
    count = 1 + -(-(side - tile) // step)
    return [round(number * (side - tile) / (count - 1)) for number in range(count)]


def tile_places(side: int, tile: int, overlap: float) -> list[tuple[slice, slice]]:
    """The pixels (rows, columns) of every tile of a square, row by row."""
    starts = tile_starts(side, tile, overlap)
    length = tile or side
    spans = [slice(start, start + length) for start in starts]
    return [(rows, columns) for rows in spans for columns in spans]


def tile_weights(tile: int) -> Array:
    """Tile×tile float32: what a tile's pixels count, most in its middle and a little at its rim."""
    distance = np.arange(tile) + 0.5
    line = np.minimum(distance, distance[::-1]) / (tile / 2)
    return np.outer(line, line).astype(np.float32)
