"""Boxes around objects, upright or turned to fit."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import ConvexHull

from polyclinic.masks import Mask
from polyclinic.weak.regions import Window, parts
from polyclinic.weak.style import Region, Style, foreground

Shape = tuple[int, ...]
Plane = NDArray[np.float64]  # H×W
NEARLY = 1e-6  # pixels; what lies on a box's line is inside


@dataclass(frozen=True)
class Box:
    """A box around an object of class `number`, in pixels: middle, size, and degrees of turn.

    Pixel (0, 0) covers rows and columns from -0.5 to 0.5; a positive angle turns clockwise.
    """

    number: int
    row: float
    column: float
    height: float
    width: float
    angle: float = 0.0

    def inside(self, shape: Shape, *, share: float = 1.0, margin: float = 0.0) -> Region:
        """The pixels within `share` of the box, grown by `margin` pixels on each side."""
        down, right = self._offsets(shape)
        high, wide = (share * size / 2 + margin + NEARLY for size in (self.height, self.width))
        return np.asarray((down <= high) & (right <= wide))

    def square_radius(self, shape: Shape) -> Plane:
        """0 in the middle, 1 on the ellipse that the box holds, growing as the square."""
        down, right = self._offsets(shape)
        return (down * 2 / self.height) ** 2 + (right * 2 / self.width) ** 2

    def middle(self, shape: Shape) -> tuple[int, int]:
        """The pixel in the middle, or the nearest to it that the image has."""
        row, column = (
            min(max(round(place), 0), size - 1)
            for place, size in zip((self.row, self.column), shape, strict=True)
        )
        return row, column

    def holds(self, row: float, column: float) -> bool:
        """Whether this place is inside."""
        down, right = self._turned(np.array(row - self.row), np.array(column - self.column))
        return bool(down <= self.height / 2 and right <= self.width / 2)

    def places(self, shape: Shape) -> tuple[Plane, Plane]:
        """Where each pixel is from the middle (H×W), along the box's height and its width."""
        rows, columns = np.indices(shape, dtype=np.float64)
        return self._along(rows - self.row, columns - self.column)

    def _offsets(self, shape: Shape) -> tuple[Plane, Plane]:
        """How far each pixel is from the middle, along the box's height and its width."""
        rows, columns = np.ogrid[: shape[0], : shape[1]]
        return self._turned(rows - self.row, columns - self.column)

    def _turned(self, down: Plane, right: Plane) -> tuple[Plane, Plane]:
        along = self._along(down, right)
        return np.abs(along[0]), np.abs(along[1])

    def _along(self, down: Plane, right: Plane) -> tuple[Plane, Plane]:
        turn = np.radians(self.angle)
        if not turn:
            return down, right
        sine, cosine = np.sin(turn), np.cos(turn)
        return cosine * down - sine * right, sine * down + cosine * right


def find_boxes(mask: Mask, style: Style, *, turned: bool = False) -> list[Box]:
    """A box for the outline of each object of each class, larger ones first.

    Turned ones have the smallest area of all boxes that hold the object's pixels.
    """
    around = turned_box if turned else _upright_box
    boxes = [
        around(number, window, part)
        for number in foreground(mask)
        for window, part in parts(style.outlined(mask, number), several=style.several)
        if (part & (mask[window] == number)).any()
    ]
    return sorted(boxes, key=lambda box: -box.height * box.width)


def _upright_box(number: int, window: Window, _: Region) -> Box:
    rows, columns = window
    return Box(
        number,
        row=(rows.start + rows.stop - 1) / 2,
        column=(columns.start + columns.stop - 1) / 2,
        height=rows.stop - rows.start,
        width=columns.stop - columns.start,
    )


def turned_box(number: int, window: Window, part: Region) -> Box:
    """The smallest box that holds a part; one of its sides lies along one of the convex hull."""
    hull = _hull(part) + np.array([axis.start for axis in window])
    edges = np.roll(hull, -1, axis=0) - hull
    turns = np.arctan2(edges[:, 0], edges[:, 1])
    turns = (turns + np.pi / 4) % (np.pi / 2) - np.pi / 4
    turns = turns[np.abs(turns).argsort(kind="stable")]
    downwards = hull @ np.stack([np.cos(turns), -np.sin(turns)])
    rightwards = hull @ np.stack([np.sin(turns), np.cos(turns)])
    areas = np.ptp(downwards, axis=0) * np.ptp(rightwards, axis=0)
    # Of equal ones the least turned, whatever rounding makes of equal.
    best = int((areas <= areas.min() * (1 + 1e-9)).argmax())
    sine, cosine = np.sin(turns[best]), np.cos(turns[best])
    down, right = (
        (axis[:, best].min() + axis[:, best].max()) / 2 for axis in (downwards, rightwards)
    )
    return Box(
        number,
        row=float(cosine * down + sine * right),
        column=float(cosine * right - sine * down),
        height=float(np.ptp(downwards[:, best])),
        width=float(np.ptp(rightwards[:, best])),
        angle=float(np.degrees(turns[best])),
    )


def _hull(part: Region) -> Plane:
    """The corners of the convex hull of the part's pixels, each pixel a square."""
    rows = np.flatnonzero(part.any(axis=1))
    first = part[rows].argmax(axis=1) - 0.5
    last = part.shape[1] - 0.5 - part[rows, ::-1].argmax(axis=1)
    corners = [(rows + half, ends) for half in (-0.5, 0.5) for ends in (first, last)]
    places = np.concatenate([np.stack(corner, axis=1) for corner in corners])
    return places[ConvexHull(places).vertices]
