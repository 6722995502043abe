"""What a kind of weak label is."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from polyclinic.weak.style import Mask, Style


@dataclass(frozen=True)
class Kind:
    """A way to label: how it is made from a mask, what it is, and what it costs an annotator."""

    draw: Callable[[Mask, np.random.Generator, Style], Mask]
    summary: str
    cost: str
