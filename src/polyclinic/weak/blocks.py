"""Blocks: the inside of every object, and all that lies well away from objects."""

import numpy as np

from polyclinic.weak.depth import depth, parts
from polyclinic.weak.style import UNLABELLED, Mask, Style, foreground, side_of

FARTHEST = 0.8  # of the way to the background's middle, where objects leave little of it


def blocks(mask: Mask, _: np.random.Generator, style: Style) -> Mask:
    """What is left of each class when its edges are taken away."""
    label = np.full_like(mask, UNLABELLED)
    for number in foreground(mask):
        # The image's border is no edge: the object goes on behind it.
        for window, part in parts(mask == number, several=style.several, around=1):
            depths = depth(part, "chessboard", edge=False)
            label[window][part & (depths > style.core * depths.max())] = number
    away = depth(mask == 0, "chessboard", edge=False)
    label[away > min(style.clearance * side_of(mask), FARTHEST * away.max())] = 0
    return label
