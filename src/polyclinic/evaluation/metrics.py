"""How well a predicted mask agrees with the true one: overlap and distances between the surfaces.

Definitions are MedPy's. A surface is made of the pixels of a mask with a direct neighbour (4 in 2D,
6 in 3D) outside it, what lies beyond the image counting as outside. Every surface pixel of either
mask has a distance to the other mask's surface; all of them are pooled, and `hd` is their maximum,
`hd95` their 95th percentile, `assd` their mean. None depends on which mask is called the true one.

Empty masks: where both are empty they agree, so `dice` and `iou` are 1 and all distances 0. Where
exactly one is empty, `dice` and `iou` are 0 and all distances are the diagonal of the image in the
units of the spacing, more than any two masks with content can be apart. `scoring.count_empty` tells
how many cases this rule decided.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

OVERLAPS = ("dice", "iou")
DISTANCES = ("hd", "hd95", "assd")

Mask = NDArray[np.bool_]
Spacing = float | Sequence[float] | NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Metric:
    """A function of (predicted, true, spacing=1.0), a line about it, and which values are better.

    The unit is empty for a ratio in 0–1 and "px" for a distance: pixels, or what the spacing is in.
    """

    function: Callable[..., float]
    summary: str
    better: Literal["higher", "lower"]
    unit: str


class MaskError(ValueError):
    """Masks, or a spacing, that cannot be compared; lists everything that is wrong."""


def dice(predicted: ArrayLike, true: ArrayLike, spacing: Spacing = 1.0) -> float:
    """Twice the common part over the sum of both masks, in 0–1; 1 where both are empty."""
    return all_metrics(predicted, true, spacing, ("dice",))["dice"]


def iou(predicted: ArrayLike, true: ArrayLike, spacing: Spacing = 1.0) -> float:
    """The common part over the union of both masks, in 0–1; 1 where both are empty."""
    return all_metrics(predicted, true, spacing, ("iou",))["iou"]


def hd(predicted: ArrayLike, true: ArrayLike, spacing: Spacing = 1.0) -> float:
    """Largest surface distance; 0 where both masks are empty, the diagonal where one is."""
    return all_metrics(predicted, true, spacing, ("hd",))["hd"]


def hd95(predicted: ArrayLike, true: ArrayLike, spacing: Spacing = 1.0) -> float:
    """95th percentile of the pooled surface distances; empty masks as in `hd`."""
    return all_metrics(predicted, true, spacing, ("hd95",))["hd95"]


def assd(predicted: ArrayLike, true: ArrayLike, spacing: Spacing = 1.0) -> float:
    """Mean of the pooled surface distances; empty masks as in `hd`."""
    return all_metrics(predicted, true, spacing, ("assd",))["assd"]


def all_metrics(
    predicted: ArrayLike,
    true: ArrayLike,
    spacing: Spacing = 1.0,
    names: Sequence[str] = OVERLAPS + DISTANCES,
) -> dict[str, float]:
    """Several metrics of one pair of masks (2D or 3D, boolean or 0/1), sharing what they can.

    The spacing is the size of a pixel: one number, or one per axis.
    """
    if mistakes := unknown_metrics(names):
        raise ValueError("; ".join(mistakes))
    first, second, sizes = _checked(predicted, true, spacing)
    values: dict[str, float] = {}
    if any(name in OVERLAPS for name in names):
        values |= _overlaps(first, second)
    if any(name in DISTANCES for name in names):
        values |= _distances(first, second, sizes)
    return {name: values[name] for name in names}


def unknown_metrics(names: Sequence[str]) -> list[str]:
    """A sentence about each name that is no metric, with the nearest that is."""
    allowed = OVERLAPS + DISTANCES
    near = {name: get_close_matches(name, allowed, n=1) for name in names if name not in allowed}
    return [
        f'no metric "{name}"; '
        + (f'did you mean "{found[0]}"?' if found else f"there are {', '.join(allowed)}")
        for name, found in near.items()
    ]


def _overlaps(predicted: Mask, true: Mask) -> dict[str, float]:
    common = int(np.count_nonzero(predicted & true))
    total = int(np.count_nonzero(predicted)) + int(np.count_nonzero(true))
    if total == 0:
        return {"dice": 1.0, "iou": 1.0}
    return {"dice": 2 * common / total, "iou": common / (total - common)}


def _distances(predicted: Mask, true: Mask, spacing: tuple[float, ...]) -> dict[str, float]:
    ordered = np.sort(_pooled_distances(predicted, true, spacing))
    last = len(ordered) - 1
    return {
        "hd": float(ordered[last]),
        # numpy.percentile gives the same, ten times slower than the sort.
        "hd95": float(np.interp(0.95 * last, np.arange(last + 1), ordered)),
        "assd": float(ordered.mean()),
    }


def _pooled_distances(
    predicted: Mask, true: Mask, spacing: tuple[float, ...]
) -> NDArray[np.float64]:
    empty = (not predicted.any(), not true.any())
    if all(empty):
        return np.zeros(1)
    if any(empty):
        return np.array([math.hypot(*np.multiply(true.shape, spacing))])
    # numba takes half a second to import: only who measures distances should wait for it.
    from polyclinic.evaluation.surface import surface_distances

    return surface_distances(predicted, true, spacing)


def _checked(
    predicted: ArrayLike, true: ArrayLike, spacing: Spacing
) -> tuple[Mask, Mask, tuple[float, ...]]:
    first, second = np.asarray(predicted), np.asarray(true)
    sizes = np.asarray(spacing, dtype=np.float64).reshape(-1).tolist()
    if len(sizes) == 1:
        sizes *= second.ndim
    mistakes = [
        *_shape_mistakes(first, second),
        *_value_mistakes("predicted", first),
        *_value_mistakes("true", second),
        *_spacing_mistakes(sizes, second.ndim),
    ]
    if mistakes:
        raise MaskError("these masks cannot be compared: " + "; ".join(mistakes))
    return first.astype(np.bool_, copy=False), second.astype(np.bool_, copy=False), tuple(sizes)


def _shape_mistakes(predicted: NDArray[Any], true: NDArray[Any]) -> list[str]:
    if predicted.shape != true.shape:
        return [f"predicted has the shape {predicted.shape}, true has {true.shape}"]
    if true.ndim not in (2, 3):
        return [f"masks must be 2D or 3D, got {true.ndim}D"]
    return []


def _value_mistakes(name: str, mask: NDArray[Any]) -> list[str]:
    if mask.dtype == np.bool_:
        return []
    others = mask[(mask != 0) & (mask != 1)]
    if not others.size:
        return []
    examples = ", ".join(str(value) for value in np.unique(others)[:3])
    return [f"{name} must be boolean or hold 0 and 1 only, found {examples}"]


def _spacing_mistakes(sizes: list[float], axes: int) -> list[str]:
    if len(sizes) != axes:
        return [f"spacing must be one number or one per axis ({axes}), got {len(sizes)} numbers"]
    if not all(math.isfinite(size) and size > 0 for size in sizes):
        shown = ", ".join(f"{size:g}" for size in sizes)
        return [f"spacing must be positive and finite, got {shown}"]
    return []
