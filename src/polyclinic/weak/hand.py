"""The unsteadiness of a hand: smooth random numbers at some places of an image."""

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

Places = NDArray[np.intp]  # N rows and columns, as np.argwhere gives them
Numbers = NDArray[np.float64]


def hills(
    rng: np.random.Generator, places: Places, shape: tuple[int, ...], size: float
) -> Numbers:
    """A number around 0 for each place, alike for places much nearer than `size` pixels.

    The random landscape is that of the whole image: it does not depend on the places.
    """
    knots = rng.standard_normal([int(length / size) + 2 for length in shape])
    return np.asarray(ndimage.map_coordinates(knots, places.T / size, order=1))
