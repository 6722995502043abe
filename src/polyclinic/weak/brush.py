"""A brush in a hand that is not quite steady."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from polyclinic.weak.style import Region

Level = NDArray[np.float32]  # H×W: pixels off the middle of a stroke, negative at one side of it
Places = NDArray[np.intp]  # N×2 rows and columns
WOBBLE = 0.2  # brush widths that a stroke is off by, changing
STRETCH = 4.0  # … over so many brush widths


@dataclass(frozen=True)
class Brush:
    """A brush of `width` pixels and the generator that moves it."""

    rng: np.random.Generator
    width: float

    def stroke(self, level: Level) -> Region:
        """The pixels that are less than half the brush off, give or take a wobble."""
        stroke = np.abs(level) < self.width
        off = WOBBLE * self.width * self.hills(np.argwhere(stroke), level.shape, STRETCH)
        stroke[stroke] = np.abs(level[stroke] + off) < self.width / 2
        return stroke

    def hills(self, places: Places, shape: tuple[int, ...], size: float) -> NDArray[np.float64]:
        """A random height around 0 for each place, alike where less than `size` widths apart.

        The landscape is the whole image's: a place has the same height whatever the others are.
        """
        step = size * self.width
        knots = self.rng.standard_normal([int(length / step) + 2 for length in shape])
        return np.asarray(ndimage.map_coordinates(knots, places.T / step, order=1))
