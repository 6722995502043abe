"""The minimum spanning tree of a pixel grid, compiled on first use and then kept on disk.

Kruskal's algorithm on sorted bits: pixels are numbered in reading order, and edges join direct
neighbours.
"""

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

Positions = NDArray[np.int32]
Reals = NDArray[Any]  # float32 or float64

DIGIT = 11  # bits sorted at a time
BUCKETS = 1 << DIGIT


@njit(cache=True, nogil=True)
def grow(
    guide: Reals, costs: Reals, bits: NDArray[Any], order: Positions, parent: Positions, cost: Reals
) -> None:
    """Fill order, parent and the cost of the way to the parent with the tree of a guide (C×H×W).

    An edge costs the squared distance of its two pixels. Among equals the vertical edges come
    first, each kind in reading order. `costs` is work space for two numbers a pixel, and `bits`
    the same memory seen as integers.
    """
    _, height, width = guide.shape
    _measure(guide, costs)
    links = _span(_sorted(bits, _edges(height, width)), height, width)
    _walk(links, width, costs, order, parent, cost)


@njit(cache=True, nogil=True)
def _measure(guide: Reals, costs: Reals) -> None:
    """Cost of the edge down from each pixel, then of the edge right from each pixel."""
    channels, height, width = guide.shape
    pixels = height * width
    costs[:] = 0
    for channel in range(channels):
        plane = guide[channel].reshape(pixels)
        _add_squares(costs[: pixels - width], plane[: pixels - width], plane[width:])
        # Also from the end of a row to the start of the next, where there is no edge.
        _add_squares(costs[pixels : 2 * pixels - 1], plane[: pixels - 1], plane[1:])


@njit(cache=True, nogil=True)
def _add_squares(squares: Reals, first: Reals, second: Reals) -> None:
    for index in range(squares.size):
        difference = first[index] - second[index]
        squares[index] += difference * difference


@njit(cache=True, nogil=True)
def _edges(height: int, width: int) -> Positions:
    """The edges that exist, as places in the array of costs."""
    pixels, down = height * width, (height - 1) * width
    edges = np.empty(down + height * (width - 1), np.int32)
    for edge in range(down):
        edges[edge] = edge
    for row in range(height):
        first = down + row * (width - 1)
        for column in range(width - 1):
            edges[first + column] = pixels + row * width + column
    return edges


@njit(cache=True, nogil=True)
def _sorted(bits: NDArray[Any], edges: Positions) -> Positions:
    """Edges by rising cost, equals as they came: the bits of floats ≥ 0 sort like the floats."""
    keys = bits[edges]
    next_keys, next_edges = np.empty_like(keys), np.empty_like(edges)
    for shift in range(0, 8 * bits.itemsize, DIGIT):
        _sort_digit(keys, edges, next_keys, next_edges, shift)
        keys, next_keys = next_keys, keys
        edges, next_edges = next_edges, edges
    return edges


@njit(cache=True, nogil=True)
def _sort_digit(
    keys: NDArray[Any],
    edges: Positions,
    next_keys: NDArray[Any],
    next_edges: Positions,
    shift: int,
) -> None:
    starts = np.zeros(BUCKETS + 1, np.int32)
    for key in keys:
        starts[((key >> shift) & (BUCKETS - 1)) + 1] += 1
    for bucket in range(BUCKETS):
        starts[bucket + 1] += starts[bucket]
    for index in range(keys.size):
        key = keys[index]
        bucket = (key >> shift) & (BUCKETS - 1)
        place = starts[bucket]
        next_keys[place] = key
        next_edges[place] = edges[index]
        starts[bucket] = place + 1


@njit(cache=True, nogil=True)
def _span(edges: Positions, height: int, width: int) -> NDArray[np.uint8]:
    """Kruskal's tree: four bits a pixel say whether it is linked up, down, left and right."""
    pixels = height * width
    root = np.arange(pixels).astype(np.int32)
    links = np.zeros(pixels, np.uint8)
    missing = pixels - 1
    for edge in edges:
        if missing == 0:
            break
        across = edge >= pixels
        here = edge - pixels if across else edge
        there = here + (1 if across else width)
        one, other = _root(root, here), _root(root, there)
        if one != other:
            root[max(one, other)] = min(one, other)
            links[here] |= 8 if across else 2
            links[there] |= 4 if across else 1
            missing -= 1
    return links


@njit(cache=True, nogil=True)
def _root(root: Positions, pixel: int) -> int:
    while root[pixel] != pixel:
        root[pixel] = root[root[pixel]]
        pixel = root[pixel]
    return pixel


@njit(cache=True, nogil=True)
def _walk(
    links: NDArray[np.uint8],
    width: int,
    costs: Reals,
    order: Positions,
    parent: Positions,
    cost: Reals,
) -> None:
    """Number the pixels breadth first, which keeps a pixel's parent far enough to be ready."""
    pixels = links.size
    steps = (-width, width, -1, 1)
    edges = (-width, 0, pixels - 1, pixels)
    order[0] = parent[0] = cost[0] = 0
    end = 1
    for position in range(pixels):
        here = order[position]
        for side in range(4):
            if links[here] >> side & 1:
                there = here + steps[side]
                links[there] ^= 1 << (side ^ 1)  # the way back
                order[end], parent[end], cost[end] = there, position, costs[here + edges[side]]
                end += 1
