"""Cuts cases into train, val and test, a patient's cases always together."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from polyclinic.data.site_files import SPLITS
from polyclinic.seeds import numpy_generator


class Divisible(Protocol):
    """A case as far as splits go: its patient, and the split that it came with, if any."""

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def patient(self) -> str: ...  # noqa: D102
    @property
    def split(self) -> str | None: ...  # noqa: D102


@dataclass(frozen=True)
class SplitRule:
    """How to cut: train, val and test shares of the cases, or `folds` of which `fold` tests.

    With `recut` a split that cases came with does not count. With `in_order` each part is a run of
    patients in the order of their names, so that neighbours stay together.
    """

    ratio: tuple[float, float, float] = (0.7, 0.1, 0.2)
    folds: int = 0
    fold: int = 0
    seed: int = 0
    recut: bool = False
    in_order: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        """What the kept file calls its splits: one column, or one for each fold."""
        return tuple(f"fold{fold}" for fold in range(self.folds)) or ("split",)

    @property
    def file_name(self) -> str:
        """The file in a site's folder that holds such a cut."""
        return f"folds-{self.folds}.csv" if self.folds else "splits.csv"

    @property
    def validation(self) -> float:
        """The share to validate on of what is not for testing."""
        return self.ratio[1] / (self.ratio[0] + self.ratio[1])

    def words(self, given: bool) -> str:
        """How the cut was made, for the kept file; `given`: the site itself says train and test."""
        how = "in order" if self.in_order else f"seed {self.seed}"
        if given and self.folds:
            return f"test as given; {self.folds} folds validate; {how}"
        if given:
            return f"train and test as given; validation {self.validation:.3g}; {how}"
        if self.folds:
            return f"{self.folds} folds; validation {self.validation:.3g}; {how}"
        return f"ratio {' '.join(f'{share:.3g}' for share in self.ratio)}; {how}"


def split_cases(cases: Sequence[Divisible], rule: SplitRule, site: str) -> list[dict[str, str]]:
    """Case → split, for each of the rule's columns; the same for the same seed and site name.

    Where cases have a split already, only validation cases are taken, from the train cases; with
    folds each fold of what is not for testing validates once.
    Raises ValueError where there are too few patients.
    """
    rng = None if rule.in_order else numpy_generator(rule.seed, "split", site)
    tested = {case.name for case in cases if case.split == "test"}
    if tested and not rule.folds:
        return [_validated(cases, tested, rule, rng)]
    if not rule.folds:
        return [divide(cases, dict(zip(SPLITS, rule.ratio, strict=True)), rng)]
    rest = [case for case in cases if case.name not in tested]
    folds = divide(rest, {str(fold): 1 / rule.folds for fold in range(rule.folds)}, rng)
    if tested:
        turns = [{str(fold): "val"} for fold in range(rule.folds)]
        return [
            {
                case.name: turn.get(folds[case.name], "train") if case.name in folds else "test"
                for case in cases
            }
            for turn in turns
        ]
    return [
        _validated(cases, {name for name in folds if folds[name] == str(fold)}, rule, rng)
        for fold in range(rule.folds)
    ]


def divide(
    cases: Sequence[Divisible], shares: Mapping[str, float], rng: np.random.Generator | None
) -> dict[str, str]:
    """Case → part, each part as near to its share as patients allow and with at least one.

    Without a generator one part follows the other in the order of patients' names.
    """
    parts = [part for part, share in shares.items() if share > 0]
    sizes = Counter(case.patient for case in cases)
    if len(sizes) < len(parts):
        wanted = ", ".join(parts) if set(parts) <= set(SPLITS) else f"{len(parts)} folds"
        found = "1 patient" if len(sizes) == 1 else f"{len(sizes)} patients"
        raise ValueError(f"{found} cannot be divided into {wanted}")
    if rng is None:
        in_order = _in_order(sizes, {part: shares[part] for part in parts})
        return {case.name: in_order[case.patient] for case in cases}
    wanting = {part: shares[part] * len(cases) for part in parts}
    part_of: dict[str, str] = {}
    for number, patient in enumerate(rng.permutation(sorted(sizes)).tolist()):
        part = parts[number] if number < len(parts) else max(parts, key=wanting.__getitem__)
        part_of[patient] = part
        wanting[part] -= sizes[patient]
    return {case.name: part_of[case.patient] for case in cases}


def _in_order(sizes: Mapping[str, int], shares: Mapping[str, float]) -> dict[str, str]:
    """Patient → part: each part ends as near to its share as patients allow."""
    patients = sorted(sizes, key=_numbers_by_value)
    counted = np.cumsum([sizes[patient] for patient in patients])
    ends = np.cumsum(list(shares.values())) * counted[-1]
    part_of: dict[str, str] = {}
    for parts_left, part, end in zip(range(len(shares) - 1, -1, -1), shares, ends, strict=True):
        begin, last = len(part_of), len(patients) - parts_left
        stop = begin + 1 + int(np.abs(counted[begin:last] - end).argmin())
        part_of |= dict.fromkeys(patients[begin:stop], part)
    return part_of


def _numbers_by_value(name: str) -> list[tuple[int, str]]:
    """What sorts frame10 behind frame9."""
    return [(int(part), "") if part.isdecimal() else (0, part) for part in re.split(r"(\d+)", name)]


def _validated(
    cases: Sequence[Divisible], tested: set[str], rule: SplitRule, rng: np.random.Generator | None
) -> dict[str, str]:
    rest = [case for case in cases if case.name not in tested]
    parts = divide(rest, {"train": 1 - rule.validation, "val": rule.validation}, rng)
    return {case.name: parts.get(case.name, "test") for case in cases}
