"""Whether tensors that leave a site hold values that must stay there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import torch
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


def marks(tensors: Iterable[Tensor]) -> Marks:
    """A number for each slice of the tensors: eight neighbouring values, or a shorter tensor.

    Slices of equal values tell nothing and have none. Slices across the ends of two tensors have
    one too, but equal others only by chance.
    """
    flat = [tensor.detach().cpu().reshape(-1).double() for tensor in tensors]
    long = [values for values in flat if len(values) >= SLICE]
    short = [_padded(values) for values in flat if 1 < len(values) < SLICE]
    found = [_marks(torch.cat(long).numpy())] if long else []
    found += [_marks(values) for values in short if values is not None]
    return np.concatenate(found) if found else np.empty(0, np.uint64)


def owner(tensors: Mapping[str, Tensor], found: Marks) -> str:
    """The first tensor that holds one of the slices."""
    names = (name for name, each in tensors.items() if len(leaked(marks([each]), found)))
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


def _padded(values: Tensor) -> NDArray[np.float64] | None:
    """A short tensor as one slice; None where it tells nothing or, as a code, is zeros and ones."""
    few = values.numpy()
    if np.isin(few, (0, 1)).all() or (few == few[0]).all():
        return None
    return np.pad(few, (0, SLICE - len(few)), constant_values=-float(len(few)))


def _marks(values: NDArray[np.float64]) -> Marks:
    """Numbers that other slices do not have, but for one in 2⁶⁴ by chance."""
    scattered = _scattered(values.view(np.uint64))
    count = len(values) - SLICE + 1
    numbers = np.zeros(count, dtype=np.uint64)
    for place in range(SLICE):
        numbers = numbers * np.uint64(0x9E3779B97F4A7C15) + scattered[place : place + count]
    changes = np.concatenate(([0], np.cumsum(values[1:] != values[:-1])))
    return numbers[changes[SLICE - 1 :] > changes[:count]]


def _scattered(numbers: Marks) -> Marks:
    """Each number as another one, in whose bits no order is left."""
    for factor in (0xBF58476D1CE4E5B9, 0x94D049BB133111EB):
        numbers = (numbers ^ (numbers >> np.uint64(31))) * np.uint64(factor)
    return numbers ^ (numbers >> np.uint64(31))
