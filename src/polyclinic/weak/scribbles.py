"""Scribbles: a stroke along the inside of each object, and one around all of them."""

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from polyclinic.weak.boxes import Shape, find_boxes
from polyclinic.weak.depth import Depth, depth, parts, without_holes
from polyclinic.weak.hand import Hand
from polyclinic.weak.style import UNLABELLED, Mask, Region, Style, foreground, side_of

WIDEST_TURN = 15.0  # degrees of the stroke around objects
SMALLEST = 2.5  # widths of the brush from edge to middle, for a stroke to go round inside


def scribbles(mask: Mask, rng: np.random.Generator, style: Style) -> Mask:
    """Strokes of a hand that is not quite steady."""
    label = np.full_like(mask, UNLABELLED)
    brush = max(1.0, style.brush * side_of(mask))
    around = _around(mask, rng, style, brush)
    label[around & (mask == 0)] = 0
    for number in foreground(mask):
        outline = np.isin(mask, style.outline(number))
        for window, part in parts(outline, several=style.several, around=1):
            region = part & (mask[window] == number)
            if region.any():
                label[window][region & _inside(part, region, rng, style, brush)] = number
    return label


def ragged_scribbles(mask: Mask, rng: np.random.Generator, style: Style) -> Mask:
    """The same strokes by a nearly dry brush: thinner here and there, and with gaps."""
    return _worn(scribbles(mask, rng, style), rng, style)
