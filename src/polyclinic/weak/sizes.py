"""A style for organs that nothing was measured on: lengths by the size of what a mask shows."""

from dataclasses import replace

import numpy as np

from polyclinic.masks import UNLABELLED, Mask
from polyclinic.weak.regions import depth, parts
from polyclinic.weak.style import Style, side_of

RADIUS = 0.1  # of the objects that the plain lengths suit: a share of the image's shorter side
SMALLEST, LARGEST = 0.2, 1.5  # factors on the plain lengths
LENGTHS = ("brush", "dot", "around", "core", "clearance", "margin", "halo")
FILLED = 0.3  # share of its box that an object fills, below which its box says little


def sized(style: Style, mask: Mask) -> Style:
    """The style with its lengths in proportion to the thickest place of what the mask shows.

    Things that wind through their box, such as vessels, are not taken for it.
    """
    objects = (mask != 0) & (mask != UNLABELLED)
    if not objects.any():
        return style
    radius = float(depth(objects).max()) / side_of(mask)
    factor = float(np.clip(radius / RADIUS, SMALLEST, LARGEST))
    lengths = {name: factor * getattr(style, name) for name in LENGTHS}
    low, high = style.depth
    largest = max((part for _, part in parts(objects, several=True)), key=np.sum)
    return replace(
        style,
        **lengths,
        depth=(factor * low, factor * high),
        boxed=style.boxed and bool(largest.mean() > FILLED),
    )
