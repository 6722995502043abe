"""Scores of many cases: one row for each case, region and metric."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from polyclinic.evaluation.metrics import DISTANCES, OVERLAPS, Metric, all_metrics, unknown_metrics

UNLABELLED = 255

ClassMaps = NDArray[np.integer[Any]]  # N × H × W, a class number in each pixel
Regions = Mapping[str, tuple[int, ...]]  # the classes whose union is scored


class ScoreRow(NamedTuple):
    """One metric of one region of one case."""

    case: str
    region: str
    metric: str
    value: float


class EmptyCounts(NamedTuple):
    """Numbers of cases that the rule for empty masks decided: by which of the masks was empty."""

    both: int
    predicted: int
    true: int


class ScoringError(ValueError):
    """Cases that cannot be scored; lists everything that is wrong."""


def score_cases(
    predicted: ClassMaps,
    true: ClassMaps,
    names: Sequence[str],
    regions: Regions,
    spacing: NDArray[np.floating[Any]],
    metrics: Sequence[str],
    known: Mapping[str, Metric] = {},
) -> list[ScoreRow]:
    """A row for each case, region and metric, in this order; the spacing of pixels is N × 2.

    `known` has the metrics that are not among the built-in ones, which share what they can.
    """
    shared = [name for name in metrics if name not in known or name in OVERLAPS + DISTANCES]
    _refuse_mistakes(predicted, true, names, regions, spacing, shared)
    rows = []
    # No threads: a case takes about a millisecond, too little to win by handing it over.
    for name, first, second, sizes in zip(names, predicted, true, spacing, strict=True):
        for region, classes in regions.items():
            masks = union(first, classes), union(second, classes)
            values = all_metrics(*masks, sizes, shared)
            for metric in metrics:
                if metric not in values:
                    values[metric] = float(known[metric].function(*masks, sizes))
                rows.append(ScoreRow(name, region, metric, values[metric]))
    return rows


def count_empty(predicted: ClassMaps, true: ClassMaps, regions: Regions) -> dict[str, EmptyCounts]:
    """For each region, how many of the cases have no pixel of it in one or both class maps."""
    return {
        region: _empty_counts(union(predicted, classes), union(true, classes))
        for region, classes in regions.items()
    }


def union(class_map: ClassMaps, classes: Sequence[int]) -> NDArray[np.bool_]:
    """Where a class map holds one of the classes."""
    mask = class_map == classes[0]
    for number in classes[1:]:
        mask |= class_map == number
    return mask


def _empty_counts(predicted: NDArray[np.bool_], true: NDArray[np.bool_]) -> EmptyCounts:
    pixels = tuple(range(1, true.ndim))
    first, second = ~predicted.any(axis=pixels), ~true.any(axis=pixels)
    counts = (first & second, first & ~second, second & ~first)
    return EmptyCounts(*(int(np.count_nonzero(each)) for each in counts))


def _refuse_mistakes(
    predicted: ClassMaps,
    true: ClassMaps,
    names: Sequence[str],
    regions: Regions,
    spacing: NDArray[np.floating[Any]],
    metrics: Sequence[str],
) -> None:
    mistakes = unknown_metrics(metrics)
    mistakes += [f'region "{region}" has no classes' for region in regions if not regions[region]]
    if predicted.shape != true.shape:
        mistakes.append(f"predicted has the shape {predicted.shape}, true has {true.shape}")
    if len(names) != len(true):
        mistakes.append(f"{len(names)} names for {len(true)} cases")
    if spacing.shape != (len(true), true.ndim - 1):
        mistakes.append(
            f"spacing must have the shape {(len(true), true.ndim - 1)}, got {spacing.shape}"
        )
    unlabelled = [name for name, mask in zip(names, true, strict=False) if UNLABELLED in mask]
    if unlabelled:
        mistakes.append(
            f"only full masks can be scored, but unlabelled pixels ({UNLABELLED}) were found in "
            + ", ".join(unlabelled)
        )
    if mistakes:
        raise ScoringError("these cases cannot be scored: " + "; ".join(mistakes))
