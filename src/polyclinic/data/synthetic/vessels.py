"""Vessels as bundles of curves: grown, branched and drawn."""

from dataclasses import dataclass

import numba
import numpy as np
from numpy.typing import NDArray

from polyclinic.data.synthetic.canvas import Plane

Numbers = NDArray[np.float64]

STEPS = 20  # points of a curve
ALONG = np.arange(STEPS) / (STEPS - 1)


@dataclass(frozen=True)
class Vessels:
    """Curves as arrays of vessels × points: where, which way they head, and how thick they are."""

    x: Numbers
    y: Numbers
    heading: Numbers
    radius: Numbers

    def branch(
        self,
        rng: np.random.Generator,
        count: int,
        *,
        length: float,
        angle: float = 0.7,
        wobble: float,
    ) -> "Vessels":
        """New vessels that leave these at random places, thinner than where they leave."""
        parent = rng.integers(0, len(self.x), count)
        leave = rng.integers(2, STEPS - 3, count)
        side, turn, back, reach, thin = rng.random((5, count))
        side = np.where(side < 0.5, -angle, angle)
        return grow(
            rng,
            x=self.x[parent, leave],
            y=self.y[parent, leave],
            heading=self.heading[parent, leave] + side * (0.6 + 0.8 * turn),
            bend=-side * 0.8 * back,
            length=length * (0.5 + 0.8 * reach),
            radius=self.radius[parent, leave] * (0.5 + 0.3 * thin),
            wobble=wobble,
        )


def grow(
    rng: np.random.Generator,
    *,
    x: Numbers,
    y: Numbers,
    heading: Numbers,
    bend: Numbers,
    length: Numbers,
    radius: Numbers,
    wobble: float,
) -> Vessels:
    """Curves from given starts that turn by `bend` radians on the whole, wander, and taper."""
    wander = (wobble * rng.standard_normal((len(x), STEPS))).cumsum(axis=1)
    course = heading[:, None] + bend[:, None] * ALONG + wander
    step = (length / STEPS)[:, None]
    return Vessels(
        x=x[:, None] + (step * np.cos(course)).cumsum(axis=1),
        y=y[:, None] + (step * np.sin(course)).cumsum(axis=1),
        heading=course,
        radius=radius[:, None] * (1 - 0.55 * ALONG),
    )


def ink(side: int, *bundles: Vessels) -> Plane:
    """How much vessel each pixel of a side × side picture holds, from 0 to 1."""
    sheet = np.zeros((side, side), dtype=np.float32)
    for bundle in bundles:
        _draw_curves(sheet, bundle.x, bundle.y, bundle.radius)
    return sheet


@numba.njit(cache=True)
def _draw_curves(sheet: Plane, x: Numbers, y: Numbers, radius: Numbers) -> None:
    for vessel in range(x.shape[0]):
        for point in range(x.shape[1] - 1):
            _draw_piece(
                sheet,
                x[vessel, point],
                y[vessel, point],
                x[vessel, point + 1],
                y[vessel, point + 1],
                radius[vessel, point],
            )


@numba.njit(cache=True)
def _draw_piece(sheet: Plane, x0: float, y0: float, x1: float, y1: float, radius: float) -> None:
    half = sheet.shape[0] / 2
    column, row = (x0 + 1) * half - 0.5, (y0 + 1) * half - 0.5
    right, down = (x1 - x0) * half, (y1 - y0) * half
    squared = right * right + down * down + 1e-9
    reach = radius * half + 1
    strength = np.float32(min(1.0, 2 * radius * half))
    top = max(0, int(np.floor(min(row, row + down) - reach)))
    bottom = min(sheet.shape[0], int(np.ceil(max(row, row + down) + reach)) + 1)
    left = max(0, int(np.floor(min(column, column + right) - reach)))
    end = min(sheet.shape[1], int(np.ceil(max(column, column + right) + reach)) + 1)
    for i in range(top, bottom):
        for j in range(left, end):
            along = ((j - column) * right + (i - row) * down) / squared
            along = min(1.0, max(0.0, along))
            across = (j - column - along * right) ** 2 + (i - row - along * down) ** 2
            if across < reach * reach:
                cover = strength * min(1.0, reach - np.sqrt(across))
                if cover > sheet[i, j]:
                    sheet[i, j] = cover
