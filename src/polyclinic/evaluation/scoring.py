"""Scores of many cases: one row for each case, region and metric."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polyclinic.config.mistakes import did_you_mean
from polyclinic.evaluation import METRICS, Metric
from polyclinic.evaluation.mask_pair import MaskPair, Spacing
from polyclinic.masks import UNLABELLED
from polyclinic.runs import Rank

ClassMaps = NDArray[np.integer[Any]]  # N × H × W, a class number in each pixel
Regions = Mapping[str, tuple[int, ...]]  # the classes whose union is scored


ALL_CLASSES = "all classes"  # what stands for the region of a metric over classes


class ScoreRow(NamedTuple):
    """One metric of one region of one case, and the number of its patient; 0 is unknown."""

    case: str
    region: str
    metric: str
    value: float
    patient: int = 0


class ScoringError(ValueError):
    """Cases that cannot be scored; lists every error."""


def all_metrics(
    predicted: ArrayLike,
    true: ArrayLike,
    spacing: Spacing = 1.0,
    names: Sequence[str] | None = None,
    known: Mapping[str, Metric] = METRICS,
) -> dict[str, float]:
    """These metrics of one pair of masks, sharing what they can; by default all of regions."""
    names = [n for n, m in known.items() if m.of_what == "region"] if names is None else names
    if errors := unknown_metrics(names, known):
        raise ValueError("; ".join(errors))
    pair = MaskPair(predicted, true, spacing)
    return {name: known[name].of(pair) for name in names}


def score_cases(
    predicted: ClassMaps,
    true: ClassMaps,
    names: Sequence[str],
    regions: Regions,
    spacing: NDArray[np.floating[Any]],
    metrics: Sequence[str],
    known: Mapping[str, Metric] = METRICS,
    patients: Sequence[int] = (),
    classes: Sequence[int] = (),
) -> list[ScoreRow]:
    """A row for each case, region and metric, in this order; the spacing of pixels is N × 2.

    Metrics over classes are left out where `classes` are none. Rows of a patient's volume stand
    at the end, under the name of the patient's first case.
    """
    errors = unknown_metrics(metrics, known)
    errors += [f'region "{region}" has no classes' for region in regions if not regions[region]]
    errors += _array_errors(predicted, true, names, spacing)
    if errors:
        raise ScoringError("these cases cannot be scored: " + "; ".join(errors))
    wanted = {what: [n for n in metrics if known[n].of_what == what] for what in _SCOPES}
    whose = list(patients) or [0] * len(names)
    # No threads: a case takes about a millisecond, too little to win by handing it over.
    rows = [
        ScoreRow(name, region, metric, value, patient)
        for name, patient, first, second, sizes in zip(
            names, whose, predicted, true, spacing, strict=True
        )
        for region, metric, value in _of_case(first, second, sizes, regions, classes, wanted, known)
    ]
    return rows + _of_patients(predicted, true, names, whose, regions, wanted["patient"], known)


def numbered(patients: Sequence[str]) -> list[int]:
    """Numbers from 1 instead of names, in the order of first sight."""
    numbers = {name: number for number, name in enumerate(dict.fromkeys(patients), 1)}
    return [numbers[name] for name in patients]


_SCOPES = ("region", "classes", "patient")
_Found = Iterator[tuple[str, str, float]]  # region, metric, value


def _of_case(
    predicted: ClassMaps,
    true: ClassMaps,
    sizes: Spacing,
    regions: Regions,
    classes: Sequence[int],
    wanted: Mapping[str, Sequence[str]],
    known: Mapping[str, Metric],
) -> _Found:
    for region, members in regions.items():
        pair = union(predicted, members), union(true, members)
        for metric, value in all_metrics(*pair, sizes, wanted["region"], known).items():
            yield region, metric, value
    if classes and wanted["classes"]:
        pairs = [(predicted == number, true == number) for number in classes]
        found = [all_metrics(*pair, sizes, wanted["classes"], known) for pair in pairs]
        for metric in wanted["classes"]:
            yield ALL_CLASSES, metric, float(np.mean([each[metric] for each in found]))


def _of_patients(
    predicted: ClassMaps,
    true: ClassMaps,
    names: Sequence[str],
    patients: Sequence[int],
    regions: Regions,
    metrics: Sequence[str],
    known: Mapping[str, Metric],
) -> list[ScoreRow]:
    """The slices of a patient as one volume; each case by itself where patients are unknown."""
    places: dict[int | str, list[int]] = {}
    for place, patient in enumerate(patients if metrics else ()):
        places.setdefault(patient or names[place], []).append(place)
    return [
        ScoreRow(names[slices[0]], region, metric, value, patients[slices[0]])
        for slices in places.values()
        for region, members in regions.items()
        for metric, value in all_metrics(
            union(predicted[slices], members), union(true[slices], members), 1.0, metrics, known
        ).items()
    ]


def best_median_worst(names: Sequence[str], rows: Sequence[ScoreRow]) -> dict[Rank, int]:
    """Where the best, median and worst case are by the first metric; nowhere without scores."""
    if not rows:
        return {}
    values = defaultdict(list)
    for row in rows:
        if row.metric == rows[0].metric:
            values[row.case].append(row.value)
    sign = -1 if METRICS[rows[0].metric].better == "higher" else 1
    known = [index for index, name in enumerate(names) if name in values]  # of volumes, the first
    order = sorted(known, key=lambda index: sign * np.mean(values[names[index]]))
    places: dict[Rank, int] = {"best": 0, "median": len(order) // 2, "worst": len(order) - 1}
    return {rank: order[place] for rank, place in places.items()}


def union(class_map: ClassMaps, classes: Sequence[int]) -> NDArray[np.bool_]:
    """Where a class map holds one of the classes."""
    mask = class_map == classes[0]
    for number in classes[1:]:
        mask |= class_map == number
    return mask


def unknown_metrics(names: Sequence[str], known: Mapping[str, Metric]) -> list[str]:
    """A sentence about each name that is no metric, with the nearest that is."""
    there_are = f"; there are {', '.join(known)}"
    unknown = (name for name in names if name not in known)
    return [f'no metric "{name}"{did_you_mean(name, known) or there_are}' for name in unknown]


def _array_errors(
    predicted: ClassMaps, true: ClassMaps, names: Sequence[str], spacing: NDArray[Any]
) -> Iterator[str]:
    if predicted.shape != true.shape:
        yield f"predicted has the shape {predicted.shape}, true has {true.shape}"
    if len(names) != len(true):
        yield f"{len(names)} names for {len(true)} cases"
    if spacing.shape != (len(true), true.ndim - 1):
        yield f"spacing must have the shape {(len(true), true.ndim - 1)}, got {spacing.shape}"
    unlabelled = [name for name, mask in zip(names, true, strict=False) if UNLABELLED in mask]
    if unlabelled:
        yield (
            f"only full masks can be scored, but unlabelled pixels ({UNLABELLED}) were found in "
            + ", ".join(unlabelled)
        )
