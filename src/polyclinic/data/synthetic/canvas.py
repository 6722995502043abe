"""The sheet that anatomy is drawn on: coordinates, smooth random fields and level sets of shapes.

A level is an array that is 0 at a shape's centre and 1 on its edge. Everything is measured in
half-widths of the picture (x and y run from -1 to 1, y downwards), so that one seed shows the same
anatomy at every resolution.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

import numba
import numpy as np
from numpy.typing import NDArray

Plane = NDArray[np.float32]
"""A side × side array."""

Colour = tuple[float, float, float]
"""How much red, green and blue light comes back, each from 0 to 1."""

FINEST = 128  # below this side the thinnest vessels would alias, so they are drawn and averaged


@dataclass(frozen=True)
class Canvas:
    """A square of `side` working pixels that ends up as `resolution` pixels."""

    resolution: int
    side: int
    x: Plane
    y: Plane

    def field(self, rng: np.random.Generator, cells: int, size: float = 1.0) -> Plane:
        """Smooth random hills around 0, `cells` across, of about standard deviation `size`."""
        knots = rng.standard_normal((cells + 3, cells + 3), dtype=np.float32)
        knots *= np.float32(2.1 * size)  # splines average their knots, which takes that much away
        return surface(knots, self.side)

    def net(self, rng: np.random.Generator, cells: int, width: float) -> Plane:
        """A web of curved lines of relative `width`, 1 on the lines and 0 in the meshes."""
        return np.maximum(1 - np.abs(self.field(rng, cells, 1 / width)), 0)

    def warp(self, rng: np.random.Generator, cells: int, size: float) -> tuple[Plane, Plane]:
        """Coordinates that are off by about `size`, to make what is drawn with them irregular."""
        return self.x + self.field(rng, cells, size), self.y + self.field(rng, cells, size)

    def pool(self, planes: NDArray[np.float32]) -> NDArray[np.float32]:
        """The same planes at the final resolution, each pixel the mean of its working pixels."""
        factor = self.side // self.resolution
        if factor == 1:
            return planes
        total = np.zeros((*planes.shape[:-2], self.resolution, self.resolution), dtype=np.float32)
        for i, j in product(range(factor), repeat=2):
            total += planes[..., i::factor, j::factor]
        total /= factor * factor
        return total


@lru_cache(maxsize=8)
def canvas_of(resolution: int) -> Canvas:
    """The canvas for pictures of this many pixels across."""
    side = resolution * math.ceil(FINEST / resolution)
    middle = ((np.arange(side) + 0.5) * 2 / side - 1).astype(np.float32)
    y, x = np.meshgrid(middle, middle, indexing="ij")
    return Canvas(resolution, side, np.ascontiguousarray(x), np.ascontiguousarray(y))


def surface(knots: Plane, side: int) -> Plane:
    """The cubic spline surface over (cells + 3) × (cells + 3) knots as a side × side plane.

    Not a matrix product, whose last bits would depend on the number of threads.
    """
    return _surface(knots, *_splines(side, len(knots) - 3))


@lru_cache(maxsize=64)
def _splines(side: int, cells: int) -> tuple[NDArray[np.intp], Plane]:
    """For each pixel the first of the four knots around it, and their weights."""
    position = (np.arange(side) + 0.5) * cells / side
    first = np.floor(position).astype(np.intp)
    t = position - first
    weights = ((1 - t) ** 3, 4 + t * t * (3 * t - 6), 1 + 3 * t * (1 + t - t * t), t**3)
    return first, (np.stack(weights, axis=1) / 6).astype(np.float32)


@dataclass(frozen=True)
class Ellipse:
    """Where an ellipse lies, its two radii, and its tilt in radians."""

    x: float
    y: float
    across: float
    down: float
    tilt: float = 0.0

    def level(self, x: Plane, y: Plane) -> Plane:
        """0 at the centre, 1 on the edge, growing outwards like the distance."""
        cosine, sine = math.cos(self.tilt), math.sin(self.tilt)
        return _ellipse_level(
            x,
            y,
            np.float32(self.x),
            np.float32(self.y),
            np.float32(cosine / self.across),
            np.float32(sine / self.across),
            np.float32(cosine / self.down),
            np.float32(-sine / self.down),
        )


def inside(level: Plane, edge: float = 1.0, softness: float = 0.1) -> Plane:
    """1 well inside the edge, 0 well outside, changing smoothly over `softness` around it."""
    return _smooth_step(level, np.float32(edge + softness / 2), np.float32(1 / softness))


def paint(light: Plane, value: Plane | float, cover: Plane) -> None:
    """Lay a value over the picture, in place, where `cover` is 1."""
    light += cover * (value - light)


# Compiled, for these are most of the drawing: one pass instead of ten.
@numba.njit(cache=True)
def _surface(knots: Plane, first: NDArray[np.intp], weights: Plane) -> Plane:
    count, side = len(knots), len(first)
    rows = np.empty((count, side), dtype=np.float32)
    for i in range(count):
        for j in range(side):
            k, w = first[j], weights[j]
            left = w[0] * knots[i, k] + w[1] * knots[i, k + 1]
            rows[i, j] = left + w[2] * knots[i, k + 2] + w[3] * knots[i, k + 3]
    plane = np.empty((side, side), dtype=np.float32)
    for i in range(side):
        k, w = first[i], weights[i]
        for j in range(side):
            above = w[0] * rows[k, j] + w[1] * rows[k + 1, j]
            plane[i, j] = above + w[2] * rows[k + 2, j] + w[3] * rows[k + 3, j]
    return plane


@numba.njit(cache=True)
def _ellipse_level(
    x: Plane,
    y: Plane,
    middle_x: np.float32,
    middle_y: np.float32,
    along_x: np.float32,
    along_y: np.float32,
    aside_y: np.float32,
    aside_x: np.float32,
) -> Plane:
    level = np.empty_like(x)
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            right, below = x[i, j] - middle_x, y[i, j] - middle_y
            along = right * along_x + below * along_y
            aside = right * aside_x + below * aside_y
            level[i, j] = np.sqrt(along * along + aside * aside)
    return level


@numba.njit(cache=True)
def _smooth_step(level: Plane, end: np.float32, slope: np.float32) -> Plane:
    zero, one, two, three = np.float32(0), np.float32(1), np.float32(2), np.float32(3)
    step = np.empty_like(level)
    for i in range(level.shape[0]):
        for j in range(level.shape[1]):
            ramp = min(one, max(zero, (end - level[i, j]) * slope))
            step[i, j] = ramp * ramp * (three - two * ramp)
    return step
