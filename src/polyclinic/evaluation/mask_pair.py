"""A predicted and a true mask, checked, with what several metrics need of them made once."""

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Mask = NDArray[np.bool_]
Spacing = float | Sequence[float] | NDArray[np.floating[Any]]


class MaskError(ValueError):
    """Masks, or a spacing, that cannot be compared; lists every error."""


class MaskPair:
    """Two masks of one shape (2D or 3D, boolean or 0/1) and the size of a pixel along each axis.

    The spacing is one number, or one per axis.
    """

    def __init__(self, predicted: ArrayLike, true: ArrayLike, spacing: Spacing = 1.0) -> None:
        first, second = np.asarray(predicted), np.asarray(true)
        sizes = np.asarray(spacing, dtype=np.float64).reshape(-1).tolist()
        if len(sizes) == 1:
            sizes *= second.ndim
        errors = [
            *_shape_errors(first, second),
            *_value_errors("predicted", first),
            *_value_errors("true", second),
            *_spacing_errors(sizes, second.ndim),
        ]
        if errors:
            raise MaskError("these masks cannot be compared: " + "; ".join(errors))
        self.predicted: Mask = first.astype(np.bool_, copy=False)
        self.true: Mask = second.astype(np.bool_, copy=False)
        self.spacing: tuple[float, ...] = tuple(sizes)

    @cached_property
    def pixels(self) -> tuple[int, int]:
        """How many pixels the predicted and the true mask have."""
        return int(np.count_nonzero(self.predicted)), int(np.count_nonzero(self.true))

    @cached_property
    def common(self) -> int:
        """How many pixels both masks have."""
        return int(np.count_nonzero(self.predicted & self.true))

    @property
    def diagonal(self) -> float:
        """The image's diagonal in the unit of the spacing: no two pixels are farther apart."""
        return math.hypot(*np.multiply(self.true.shape, self.spacing))

    @cached_property
    def surface_distances(self) -> NDArray[np.float64]:
        """The distances of both masks' surface pixels to the other surface, pooled and sorted.

        Both masks must have a pixel.
        """
        # numba takes half a second to import: only who measures distances should wait for it.
        from polyclinic.evaluation.surface import surface_distances

        return np.sort(surface_distances(self.predicted, self.true, self.spacing))


def _shape_errors(predicted: NDArray[Any], true: NDArray[Any]) -> list[str]:
    if predicted.shape != true.shape:
        return [f"predicted has the shape {predicted.shape}, true has {true.shape}"]
    if true.ndim not in (2, 3):
        return [f"masks must be 2D or 3D, got {true.ndim}D"]
    return []


def _value_errors(name: str, mask: NDArray[Any]) -> list[str]:
    if mask.dtype == np.bool_:
        return []
    others = mask[(mask != 0) & (mask != 1)]
    if not others.size:
        return []
    examples = ", ".join(str(value) for value in np.unique(others)[:3])
    return [f"{name} must be boolean or hold 0 and 1 only, found {examples}"]


def _spacing_errors(sizes: list[float], axes: int) -> list[str]:
    if len(sizes) != axes:
        return [f"spacing must be one number or one per axis ({axes}), got {len(sizes)} numbers"]
    if not all(math.isfinite(size) and size > 0 for size in sizes):
        shown = ", ".join(f"{size:g}" for size in sizes)
        return [f"spacing must be positive and finite, got {shown}"]
    return []
