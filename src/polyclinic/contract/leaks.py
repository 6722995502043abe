"""Whether tensors that leave a site hold values that must stay there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

SLICE = 8  # neighbouring values; fewer can be equal by chance

Marks = NDArray[np.uint64]


def leaked(leaving: Marks, private: Marks) -> Marks:
    """The slices that are among what leaves and among what is private."""
    return leaving[_among(leaving, private)]


def without(found: Marks, public: Marks) -> Marks:
    """Those that are not public too."""
    return found[~_among(found, public)]


def marks(tensors: Iterable[Tensor], shorter: Iterable[int] = ()) -> Marks:
    """A number for each slice of the tensors: eight neighbouring values, or a shorter tensor.

    With `shorter`, slices of these lengths have one as well. Slices of equal values tell nothing
    and have none; those across the ends of two tensors have one, but equal others only by chance.
    """
    flat = [tensor.detach().cpu().reshape(-1).double().numpy() for tensor in tensors]
    long = [values for values in flat if len(values) >= SLICE]
    found = [_marks(values, len(values)) for values in flat if len(values) < SLICE]
    if long:
        joined = np.concatenate(long)
        found += [_marks(joined, length) for length in (SLICE, *shorter)]
    return np.concatenate(found) if found else np.empty(0, np.uint64)


def lengths(tensors: Iterable[Tensor]) -> set[int]:
    """The lengths of the tensors that are shorter than a slice."""
    return {tensor.numel() for tensor in tensors} & set(range(2, SLICE))


def owner(tensors: Mapping[str, Tensor], found: Marks) -> str:
    """The first tensor that holds one of the slices."""
    every = range(2, SLICE)
    names = (name for name, each in tensors.items() if len(leaked(marks([each], every), found)))
    return next(names, "several tensors in a row")


def _among(these: Marks, those: Marks) -> NDArray[np.bool_]:
    """Which of these are among those; nearly all are ruled out by their first bits."""
    bits = max(16, len(those).bit_length() + 3)
    likely = _same_start(these, those, bits)
    few = these[likely]
    likely[likely] = np.isin(few, those[_same_start(those, few, bits)])
    return likely


def _same_start(these: Marks, those: Marks, bits: int) -> NDArray[np.bool_]:
    starts = np.zeros(1 << bits, dtype=bool)
    starts[those >> np.uint64(64 - bits)] = True
    return starts[these >> np.uint64(64 - bits)]


def _marks(values: NDArray[np.float64], length: int) -> Marks:
    """Numbers that other slices do not have, but for one in 2⁶⁴ by chance."""
    scattered = _scattered(values.view(np.uint64))
    count = max(0, len(values) - length + 1)
    numbers = np.full(count, length, dtype=np.uint64)
    for place in range(length):
        numbers = numbers * np.uint64(0x9E3779B97F4A7C15) + scattered[place : place + count]
    return numbers[_telling(values, length, count)]


def _telling(values: NDArray[np.float64], length: int, count: int) -> NDArray[np.bool_]:
    """Which slices are not of equal values nor, if short, of zeros and ones as a code is."""
    changes = np.concatenate(([0], np.cumsum(values[1:] != values[:-1])))
    telling = changes[length - 1 :][:count] > changes[:count]
    if length < SLICE:
        others = np.concatenate(([0], np.cumsum((values != 0) & (values != 1))))
        telling &= others[length:][:count] > others[:count]
    return telling


def _scattered(numbers: Marks) -> Marks:
    """Each number as another one, in whose bits no order is left."""
    for factor in (0xBF58476D1CE4E5B9, 0x94D049BB133111EB):
        numbers = (numbers ^ (numbers >> np.uint64(31))) * np.uint64(factor)
    return numbers ^ (numbers >> np.uint64(31))
