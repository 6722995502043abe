"""What the pixels of a mask or a label hold: class numbers, or a number that says nothing.

Who cannot tell some classes apart annotates them as one: a pixel then holds the first of them.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

Mask = NDArray[np.uint8]  # H×W class numbers; in labels also UNLABELLED
UNLABELLED = 255

Groups = tuple[int, ...]
"""Class → the first of the classes that it is not told apart from; empty where all are."""


def known_regions(
    regions: Mapping[str, tuple[int, ...]], groups: Groups
) -> dict[str, tuple[int, ...]]:
    """The regions that masks with these groups show: those that are unions of groups."""
    if not groups:
        return dict(regions)
    members = {first: {n for n, each in enumerate(groups) if each == first} for first in groups}
    return {
        name: classes
        for name, classes in regions.items()
        if set(classes) == set().union(*(members[groups[number]] for number in classes))
    }


def group_names(classes: Sequence[str], groups: Groups) -> dict[int, str]:
    """What each number in a mask stands for: `{0: "background", 1: "rim or cup"}`."""
    names: dict[int, list[str]] = {}
    for number, name in enumerate(classes):
        names.setdefault(groups[number] if groups else number, []).append(name)
    return {first: " or ".join(each) for first, each in names.items()}


def merged(mask: Mask, groups: Groups) -> Mask:
    """A mask or label with each class as the first of its group; what is unlabelled stays so."""
    if not groups:
        return mask
    table = np.full(256, UNLABELLED, dtype=np.uint8)
    table[: len(groups)] = groups
    return table[mask]
