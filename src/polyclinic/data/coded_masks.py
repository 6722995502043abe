"""A mask or label out of a file that holds class numbers, other values or colours."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from polyclinic.data.code_tables import SOFT, TRANSPARENT
from polyclinic.data.coding import Coding
from polyclinic.data.errors import UnreadableError, listed
from polyclinic.data.formats.store import Slice
from polyclinic.data.readers import Array, is_grey, opaque, read_stored, whole_numbers
from polyclinic.masks import UNLABELLED, Mask

CLEAR, BLURRED = 1 << 24, 1 << 25  # beyond all colours: transparent, half transparent
COUNTED = 50  # the most frequent codes of a file that are counted

Packed = NDArray[np.int64]  # H×W, a colour as red, green and blue in one number


@dataclass(frozen=True)
class Decoded:
    """A mask or label and, where there is a problem, how many pixels have which code."""

    mask: Mask
    problem: str = ""
    seen: Counter[str] = field(default_factory=Counter)


def decode(
    path: Path,
    keys: Sequence[str],
    coding: Coding,
    *,
    label: bool,
    image: Array | None = None,
    piece: Slice | None = None,
) -> Decoded:
    """The classes in a file, and a sentence about values or colours that stand for none.

    In a label, a colour without a name says nothing: it is the image (C×H×W) that strokes were
    drawn on, or the soft edge of a stroke. With a `piece` it is a slice of a volume.
    """
    pixels = read_stored(path, keys, colours=bool(coding.colours), piece=piece)
    if pixels.shape[2] > 2 and (coding.colours or not is_grey(opaque(pixels))):
        return _by_colour(pixels, coding, image if label else None, label=label)
    return _by_value(whole_numbers(pixels), coding, label=label)


def _by_value(numbers: Array, coding: Coding, *, label: bool) -> Decoded:
    counts = np.bincount(numbers.ravel(), minlength=UNLABELLED + 1)
    meant = {value: each for value, each in coding.values.items() if label or each != UNLABELLED}
    table = np.full(len(counts), UNLABELLED, dtype=np.uint8)
    for value, number in meant.items():
        table[value : value + 1] = number  # nothing where the file has no value so large
    strange = [str(value) for value in np.flatnonzero(counts) if value not in meant]
    if not strange or not coding.certain:
        return Decoded(table[numbers])
    allowed = ", ".join(f"{value} {coding.names[each]}" for value, each in sorted(meant.items()))
    problem = f"has the value {listed(strange)}; a {_what(label)} has {allowed}"
    if not label and str(UNLABELLED) in strange:
        problem += " (255 means unlabelled and belongs in labels/ only)"
    seen = Counter({str(value): int(counts[value]) for value in np.flatnonzero(counts)})
    return Decoded(table[numbers], problem, seen)


def _by_colour(pixels: Array, coding: Coding, image: Array | None, *, label: bool) -> Decoded:
    if pixels.dtype != np.uint8:
        raise UnreadableError("has colours in more than 8 bits; save it as an 8-bit PNG")
    packed = _packed(pixels)
    mask = np.full(packed.shape, UNLABELLED, dtype=np.uint8)
    known = np.zeros(packed.shape, dtype=bool)
    for colour, number in coding.colours.items():
        here = packed == (CLEAR if colour == TRANSPARENT else int(colour[1:], 16))
        mask[here] = number
        if label or number != UNLABELLED:
            known |= here
    if not coding.certain or known.all() or (label and known.any()):
        return Decoded(mask)
    names = ", ".join(coding.colours)
    strange = _counted(packed[~known])
    if not coding.colours:
        problem = f"has colours; a {_what(label)} has one channel, of class numbers"
    elif label:
        problem = f"has no pixel of exactly the colours {names}"
    else:
        problem = f"has the colour {listed(list(strange))}; a mask has {names}"
    return Decoded(mask, problem, _counted(packed[_drawn(packed, image)]))


def _what(label: bool) -> str:
    return "label" if label else "mask"


def _packed(pixels: Array) -> Packed:
    red, green, blue = (pixels[:, :, channel].astype(np.int64) for channel in range(3))
    packed = (red << 16) + (green << 8) + blue
    if pixels.shape[2] == 4:
        packed[pixels[:, :, 3] < 255] = BLURRED
        packed[pixels[:, :, 3] == 0] = CLEAR
    return packed


def _counted(packed: Packed) -> Counter[str]:
    """The most frequent colours of these pixels and their numbers, in this order."""
    codes, counts = np.unique(packed, return_counts=True)
    order = np.argsort(-counts, kind="stable")[:COUNTED]
    return Counter({_colour(int(codes[each])): int(counts[each]) for each in order})


def _colour(code: int) -> str:
    return {CLEAR: TRANSPARENT, BLURRED: SOFT}.get(code, f"#{code:06x}")


def _drawn(packed: Packed, image: Array | None) -> NDArray[np.bool_]:
    """Where a label differs from its image; everywhere, where they cannot be compared."""
    if image is None or image.dtype != np.uint8 or image.shape[1:] != packed.shape:
        return np.ones(packed.shape, dtype=bool)
    return packed != _packed(np.broadcast_to(image, (3, *packed.shape)).transpose(1, 2, 0))
