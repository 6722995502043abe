"""The very pixels of labels that were published for fundus (384²) and OCTA (256²), where known.

They have their accidents: windows off their middle, points beyond a ragged outline, middles rounded
to one side. Nobody would draw so on purpose, but a comparison with published numbers can start from
equal labels.
"""

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
from scipy import ndimage

from polyclinic.masks import UNLABELLED, Mask
from polyclinic.weak.points import draw_dab
from polyclinic.weak.style import Region

Span = tuple[int, int]  # first and last row, or column
Line = tuple[int, int, int]  # the rows, or columns, of the first, the last and the middle dabs
DAB = 2  # pixels from a dab's middle to its tip


def octa_points(mask: Mask) -> Mask:
    """Background well off the box of the FAZ, and the FAZ just off the box's central third."""
    label = np.full_like(mask, UNLABELLED)
    spans = _spans(mask == 1)
    _draw_dabs(label, 0, *(_off(span, 9) for span in spans))
    _draw_dabs(label, 1, *(_third(span) for span in spans))
    return label


def fundus_points(mask: Mask) -> Mask:
    """Background well off the disc's box, rim midway from box to box, cup in its shrunken box."""
    label = np.full_like(mask, UNLABELLED)
    disc, cup = _trimmed_spans(mask > 0), _trimmed_spans(mask == 2)
    _draw_dabs(label, 0, *(_off(span, 16) for span in disc))
    _draw_dabs(label, 1, *map(_midway, disc, cup))
    _draw_dabs(label, 2, *map(_fifth, cup))
    return label


def octa_blocks(mask: Mask, above: int = 10, below: int = 7) -> Mask:
    """Background beyond a square window; of the FAZ what a tall window off its middle leaves."""
    label = np.full_like(mask, UNLABELLED)
    label[_eroded(mask == 0, (21, 21), (21, 21))] = 0
    label[_eroded(mask == 1, (above, below), (1, 1))] = 1
    return label


def fundus_blocks(mask: Mask) -> Mask:
    """What square windows leave of background, rim and cup."""
    label = np.full_like(mask, UNLABELLED)
    for number, reach in enumerate((35, 4, 8)):
        label[_eroded(mask == number, (reach, reach), (reach, reach))] = number
    return label


def octa_box_block(mask: Mask) -> Mask:
    """The central third of the FAZ's box, and what is beyond the grown box."""
    label = np.zeros_like(mask)
    rows, columns = _spans(mask == 1)
    grown = (slice(max(0, first - 25), last + 27) for first, last in (rows, columns))
    label[tuple(grown)] = UNLABELLED
    label[tuple(_core(span) for span in (rows, columns))] = 1
    return label


PRESETS: Mapping[str, Mapping[tuple[str, str], Callable[[Mask], Mask]]] = {
    "released": {
        ("octa", "point"): octa_points,
        ("octa", "block"): octa_blocks,
        ("octa", "box-block"): octa_box_block,
        ("fundus", "point"): fundus_points,
        ("fundus", "block"): fundus_blocks,
    },
    # Two of the five OCTA sites were given a taller window.
    "released-tall": {("octa", "block"): partial(octa_blocks, above=19, below=13)},
}
"""Preset → task and kind → the label of a mask."""


def _draw_dabs(label: Mask, number: int, rows: Line, columns: Line) -> None:
    top, bottom, row = rows
    left, right, column = columns
    for place in ((top, column), (bottom, column), (row, left), (row, right)):
        draw_dab(label, place, DAB, number)


def _off(span: Span, by: int) -> Line:
    first, last = span
    return first - by, last + by, (first + last) // 2


def _third(span: Span) -> Line:
    first, last = span
    length = last - first
    # Where floating point fell just short of a whole number.
    short = length % 6 == 4 and length < 78 and first + last <= 256
    return first + length // 3 - 3, first + 2 * length // 3 + 3, (first + last) // 2 - short


def _fifth(span: Span) -> Line:
    first, last = span
    length = last - first + 1
    return first + (length + 1) // 5 - 1, last - length // 5, (first + last) // 2


def _midway(outer: Span, inner: Span) -> Line:
    first, last = ((a + b) // 2 for a, b in zip(outer, inner, strict=True))
    return first - 1, last + 1, sum((*outer, *inner)) // 4


def _core(span: Span) -> slice:
    first, last = span
    middle, half = (first + last + 1) // 2, (last - first) // 6
    return slice(max(0, middle - half - 1), middle + half + 1)


def _spans(region: Region) -> tuple[Span, Span]:
    """The first and last row and column that a region reaches."""
    if not region.any():
        raise ValueError("a preset needs a mask that has every class of its task")
    rows, columns = (np.flatnonzero(region.any(axis=axis)).tolist() for axis in (1, 0))
    return (rows[0], rows[-1]), (columns[0], columns[-1])


def _trimmed_spans(region: Region) -> tuple[Span, Span]:
    """The same, but a first row or column does not count without three pixels side by side."""
    (top, bottom), (left, right) = _spans(region)
    return (top + _narrow(region[top]), bottom), (left + _narrow(region[:, left]), right)


def _narrow(line: Region) -> bool:
    return not (line[:-2] & line[1:-1] & line[2:]).any()


def _eroded(region: Region, rows: Span, columns: Span) -> Region:
    """The pixels whose window, from so far before to so far behind, lies in the region."""
    left = region
    for axis, (before, behind) in enumerate((rows, columns)):
        size = before + behind + 1
        off = before - size // 2
        left = ndimage.minimum_filter1d(left, size, axis, mode="constant", cval=1, origin=off)
    return np.asarray(left)
