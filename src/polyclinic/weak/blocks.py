"""Blocks: the inside of every object, and all that lies well away from objects."""

import numpy as np

from polyclinic.masks import UNLABELLED, Mask
from polyclinic.weak.regions import parts, square_depth
from polyclinic.weak.style import Style, foreground, side_of

FARTHEST = 0.75  # of the way to the background's middle, where objects leave little of it


def blocks(mask: Mask, _: np.random.Generator, style: Style) -> Mask:
    """What is left of each class when its edges are taken away, of a ring half as much."""
    label = np.full_like(mask, UNLABELLED)
    for number in foreground(mask):
        edge = style.core * side_of(mask) / (1 if style.outline(number) == (number,) else 2)
        # The image's border is no edge: the object goes on behind it.
        for window, part in parts(mask == number, several=style.several, around=1):
            depths = square_depth(part)
            label[window][part & (depths > min(edge, style.core_share * depths.max()))] = number
    depths = square_depth(mask == 0)
    label[depths > min(style.clearance * side_of(mask), FARTHEST * depths.max())] = 0
    return label
