"""How labels are drawn for a task: every length a share of the image's shorter side.

The shares were measured on the labels that were published for `fundus` (384²) and `octa` (256²),
so that a label keeps its character at 96² as at 512².
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from polyclinic.config.mistakes import did_you_mean
from polyclinic.masks import UNLABELLED, Mask

Region = NDArray[np.bool_]  # H×W


class TaskLike(Protocol):
    """What is needed of a task: its name, and its regions as unions of classes."""

    @property
    def name(self) -> str:
        """What `STYLES` may know it by."""

    @property
    def regions(self) -> Mapping[str, tuple[int, ...]]:
        """Name → classes of what is scored, and of what an annotator outlines."""


@dataclass(frozen=True)
class Style:
    """One task's way of drawing; the defaults suit any task with objects on a background."""

    several: bool = True  # each connected part is an object of its own; else a class is one object
    outlines: Mapping[int, tuple[int, ...]] = field(default_factory=dict, hash=False)
    brush: float = 0.0095  # width of a stroke
    dot: float = 0.0058  # from a point's middle to its tip
    inset: float = 0.45  # an object's points lie on the sides of its box shrunk to this share
    around: float = 0.037  # from an object's box to the points of background
    core: float = 0.05  # from an object's edge to its block, and at most
    core_share: float = 0.36  # … this share of the way to its middle
    clearance: float = 0.088  # from an object to the background's block
    margin: float = 0.098  # from a box to the background's block
    depth: tuple[float, float] = (0.02, 0.045)  # of a scribble within an object
    arcs: bool = True  # scribbles are open at two sides of an object; else closed
    frame: float = 0.95  # the background's scribble runs midway between objects and this share
    halo: float = 0.06  # … of the image; objects count as boxes grown by this length
    boxed: bool = True  # … or, if not, as they are

    def outline(self, number: int) -> tuple[int, ...]:
        """The classes within the outline that an annotator draws around class `number`."""
        return self.outlines.get(number, (number,))

    def outlined(self, mask: Mask, number: int) -> Region:
        """All that lies within the outlines of class `number`."""
        region = mask == number
        for other in set(self.outline(number)) - {number}:
            region |= mask == other
        return region


PLAIN = Style()
STYLES: Mapping[str, Style] = {
    "fundus": Style(
        several=False,
        outlines={1: (1, 2)},
        brush=0.0084,
        dot=0.0052,
        inset=0.6,
        around=0.0417,
        core=0.0215,
        core_share=0.75,
        clearance=0.092,
        depth=(0.024, 0.045),
        arcs=False,
        frame=0.68,
        boxed=False,
    ),
    "octa": Style(
        several=False,
        brush=0.0115,
        dot=0.0078,
        around=0.0352,
        clearance=0.083,
        depth=(0.016, 0.03),
        frame=0.9,
        halo=0.098,
    ),
    "polyp": PLAIN,
    "prostate": Style(several=False),
}


def style_of(task: str | TaskLike | None) -> Style:
    """The style of a task or of a task's name; `PLAIN` for none, or one that nothing is known of.

    A task's regions say which outlines lie within others: the rim's outline holds the cup.
    """
    if task is None:
        return PLAIN
    if isinstance(task, str):
        if task not in STYLES:
            known = f"{', '.join(STYLES)}{did_you_mean(task, STYLES)}"
            raise ValueError(f'no task "{task}"; there are {known}')
        return STYLES[task]
    return replace(STYLES.get(task.name, PLAIN), outlines=_outlines(task.regions))


def side_of(mask: NDArray[Any]) -> int:
    """The shorter side in pixels, which every length is a share of."""
    return min(mask.shape)


def foreground(mask: Mask) -> list[int]:
    """The classes present, without background and what is unlabelled."""
    return [number for number in present(mask) if number]


def present(mask: Mask) -> list[int]:
    """All classes present, in their order."""
    counts = np.bincount(mask.ravel(), minlength=256)[:UNLABELLED]
    return [int(number) for number in np.flatnonzero(counts)]


def _outlines(regions: Mapping[str, tuple[int, ...]]) -> dict[int, tuple[int, ...]]:
    """Class → the smallest region that it lies in."""
    smallest: dict[int, tuple[int, ...]] = {}
    for classes in sorted(regions.values(), key=len, reverse=True):
        smallest |= dict.fromkeys(classes, classes)
    return smallest
