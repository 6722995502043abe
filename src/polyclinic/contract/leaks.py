"""Whether tensors that leave a site hold values that must stay there."""

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

SLICE = 8  # neighbouring values; fewer can be equal by chance
MASK = 64  # where all are zeros and ones, as in a mask: codes and new norm layers have a few, too
BETWEEN = np.array([np.nan])  # tensors, so that no slice crosses their ends
FACTOR = np.uint64(0x9E3779B97F4A7C15)

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
    and have none; slices of zeros and ones have one where they are as long as two rows of a mask.
    """
    flat = [tensor.detach().cpu().reshape(-1).double().numpy() for tensor in tensors]
    long = [values for values in flat if len(values) >= SLICE]
    found = [_marks(values, len(values)) for values in flat if 1 < len(values) < SLICE]
    if long:
        joined = np.concatenate([part for values in long for part in (values, BETWEEN)])
        found += [_marks(joined, length) for length in (SLICE, *shorter)]
    return np.concatenate(found) if found else np.empty(0, np.uint64)


def lengths(tensors: Iterable[Tensor]) -> set[int]:
    """The lengths of the tensors that are shorter than a slice."""
    return {tensor.numel() for tensor in tensors} & set(range(2, SLICE))


def owner(tensors: Mapping[str, Tensor], found: Marks) -> str:
    """The first tensor that holds one of the slices."""
    every = range(2, SLICE)
    return next(name for name, each in tensors.items() if len(leaked(marks([each], every), found)))


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
    """The slices of this length that hold other values than zero and one; of masks, longer ones."""
    scattered = _scattered(values.view(np.uint64))
    count = max(0, len(values) - length + 1)
    numbers = np.full(count, length, dtype=np.uint64)
    for place in range(length):
        numbers = numbers * FACTOR + scattered[place : place + count]
    found = numbers[_changing(values, length) & _other(values, length)]
    if length == SLICE and len(values) >= MASK:
        starts = np.flatnonzero(_changing(values, MASK) & ~_other(values, MASK))
        longer = np.full(len(starts), MASK, dtype=np.uint64)
        for place in range(MASK if len(starts) else 0):
            longer = longer * FACTOR + scattered[starts + place]
        found = np.concatenate((found, longer))
    return found


def _changing(values: NDArray[np.float64], length: int) -> NDArray[np.bool_]:
    """Which slices are not of equal values, and all of numbers."""
    changes = _any(np.concatenate(([False], values[1:] != values[:-1])), length, after=1)
    return changes & ~_any(np.isnan(values), length)


def _other(values: NDArray[np.float64], length: int) -> NDArray[np.bool_]:
    """Which slices hold another value than zero and one."""
    return _any((values != 0) & (values != 1), length)


def _any(true: NDArray[np.bool_], length: int, after: int = 0) -> NDArray[np.bool_]:
    """Whether something is true in each slice, its first places left out."""
    sums = np.concatenate(([0], np.cumsum(true)))
    count = max(0, len(true) - length + 1)
    return np.asarray(sums[length:] > sums[after : after + count])


def _scattered(numbers: Marks) -> Marks:
    """Each number as another one, in whose bits no order is left."""
    for factor in (0xBF58476D1CE4E5B9, 0x94D049BB133111EB):
        numbers = (numbers ^ (numbers >> np.uint64(31))) * np.uint64(factor)
    return numbers ^ (numbers >> np.uint64(31))
