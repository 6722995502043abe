"""Weak labels made from full masks: `KINDS[name](mask, rng)` gives a label, 255 = unlabelled."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

KINDS: dict[str, Callable[..., NDArray[np.uint8]]] = {}
