"""Masks for tests: what nobody wants to annotate, and what everybody does."""

import numpy as np
from hypothesis import strategies as st

RECTANGLE, ELLIPSE, RING, LINE, NOISE = range(5)


def paint(mask, shape, number, top, left, height, width, seed):
    """Paint one thing of class `number` onto the mask, as far as the image goes."""
    rows, columns = np.mgrid[: mask.shape[0], : mask.shape[1]]
    down, right = (rows - top) / height, (columns - left) / width
    radius = np.hypot(down, right)
    mask[
        {
            RECTANGLE: (abs(down) <= 1) & (abs(right) <= 1),
            ELLIPSE: radius <= 1,
            RING: (radius <= 1) & (radius > 0.6),
            LINE: abs(down - right) < 0.1,
            NOISE: np.random.default_rng(seed).random(mask.shape) < 0.05,
        }[shape]
    ] = number


@st.composite
def nasty_masks(draw, classes=3):
    """Up to 28² pixels: parts, rings, specks, lines, over the border, or one class all over."""
    size = st.integers(1, 28)
    mask = np.full((draw(size), draw(size)), draw(st.sampled_from([0, 0, 0, 1])), np.uint8)
    place, length, number = st.integers(-3, 30), st.integers(1, 14), st.integers(0, classes - 1)
    thing = st.tuples(st.integers(0, 4), number, place, place, length, length, st.integers(0, 9))
    for shape, *rest in draw(st.lists(thing, max_size=5)):
        paint(mask, shape, *rest)
    return mask


def disc_and_cup(side, disc=0.2, cup=0.1, off=0.02):
    """A fundus mask: a disc (1) with a cup (2) a little off its middle."""
    rows, columns = (np.mgrid[:side, :side] + 0.5) / side - 0.5
    mask = (np.hypot(rows, columns) < disc).astype(np.uint8)
    mask[np.hypot(rows - off, columns + off) < cup] = 2
    return mask


def blob(side, radius=0.15, row=0.5, column=0.5):
    """A lobed object (1) on background."""
    rows, columns = (np.mgrid[:side, :side] + 0.5) / side
    down, right = rows - row, columns - column
    lobes = 1 + 0.15 * np.cos(3 * np.arctan2(down, right) + 1)
    return (np.hypot(down, right) < radius * lobes).astype(np.uint8)
