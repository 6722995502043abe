"""Which case trains, validates or tests: cut once, kept in a file, reused ever after.

The file is `splits.csv`, or `folds-<k>.csv` with a column for each fold, in the site's folder.
Where that is marked read-only or its layout is not ours, the file goes to the folder that the
caller names, under the site's name.
"""

import csv
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from polyclinic.data.errors import Findings, UnreadableError, listed
from polyclinic.data.folder import SiteFolder
from polyclinic.data.site_files import SPLITS, read_csv
from polyclinic.data.splitting import Rule, cut


@dataclass(frozen=True)
class Splits:
    """Each case's split, and the table still to be written, if any."""

    of: Mapping[str, str]  # case → train, val or test
    file: Path | None = None
    rows: tuple[tuple[str, ...], ...] = ()

    def write(self) -> None:
        """Keep the cut for all later runs; does nothing where it is given or kept already."""
        if self.file is None:
            return
        self.file.parent.mkdir(parents=True, exist_ok=True)
        unfinished = self.file.with_name(f".{self.file.name}.{os.getpid()}")
        with unfinished.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows(self.rows)
        unfinished.replace(self.file)


def splits_of(
    site: SiteFolder, rule: Rule, splits_folder: Path | None, mistakes: Findings
) -> Splits:
    """The site's own split where it is complete, else the kept one, else a new cut to write.

    Where there is no place to write it, the same cut is made anew every time.
    """
    given = {case.name: case.split for case in site.cases if case.split}
    if given and rule.folds:
        mistakes.add("has a split of its own; folds would overrule it, so drop one of the two")
        return Splits({})
    if "val" in given.values() or (given and rule.validation == 0):
        return Splits(given)
    kept = kept_file(site, rule, splits_folder)
    if kept:
        return Splits(_read_kept(kept, site, rule, mistakes))
    try:
        columns = cut(site.cases, rule, site.name)
    except ValueError as error:
        mistakes.add(str(error))
        return Splits({})
    header = ("case", "patient", *rule.columns, "rule")
    rows = (
        (case.name, case.patient, *(of[case.name] for of in columns), rule.words(bool(given)))
        for case in site.cases
    )
    return Splits(columns[rule.fold], _new_file(site, rule, splits_folder), (header, *rows))


def check_kept(site: SiteFolder, mistakes: Findings) -> dict[str, str]:
    """Case → split as kept in the site's folder, empty where nothing is; misfits are noted."""
    file = kept_file(site, Rule(), None)
    rows = _rows(file, site, "split", mistakes) if file else []
    return {row["case"]: row["split"] for row in rows}


def kept_file(site: SiteFolder, rule: Rule, splits_folder: Path | None) -> Path | None:
    """The file of an earlier cut, or None where there was none."""
    folders = [] if site.divided else [site.folder]
    folders += [splits_folder / site.name] if splits_folder else []
    files = [folder / _file_name(rule) for folder in folders]
    return next((file for file in files if file.is_file()), None)


def _new_file(site: SiteFolder, rule: Rule, splits_folder: Path | None) -> Path | None:
    # Root may write anywhere: a folder marked read-only is respected all the same.
    marked_writable = site.folder.stat().st_mode & 0o222
    if not site.divided and marked_writable and os.access(site.folder, os.W_OK):
        return site.folder / _file_name(rule)
    return splits_folder / site.name / _file_name(rule) if splits_folder else None


def _file_name(rule: Rule) -> str:
    return f"folds-{rule.folds}.csv" if rule.folds else "splits.csv"


def _read_kept(file: Path, site: SiteFolder, rule: Rule, mistakes: Findings) -> dict[str, str]:
    """The kept split, or a mistake for each way in which it does not fit any more."""
    column = rule.columns[rule.fold]
    rows = _rows(file, site, column, mistakes)
    for text in _wrong_rules({row["rule"] for row in rows}, site, rule):
        mistakes.add(f"{text}; {_advice(file)}")
    return {row["case"]: row[column] for row in rows}


def _rows(file: Path, site: SiteFolder, column: str, mistakes: Findings) -> list[dict[str, str]]:
    """What a kept file says, none where it cannot be used; what does not fit is noted."""
    try:
        header, rows = read_csv(file)
    except UnreadableError as error:
        mistakes.add(f"the kept split {error}; {_advice(file)}")
        return []
    if not {"case", "patient", column, "rule"} <= set(header):
        wanted = f"case, patient, {column}, rule"
        mistakes.add(f"the kept split lacks a column of {wanted}; {_advice(file)}")
        return []
    for text in _wrong_cases({row["case"]: (row["patient"], row[column]) for row in rows}, site):
        mistakes.add(f"{text}; {_advice(file)}")
    return rows


def _advice(file: Path) -> str:
    return f"mend {file}, or delete it to cut anew (scores before and after do not compare)"


def _wrong_rules(found: set[str], site: SiteFolder, rule: Rule) -> list[str]:
    words = rule.words(any(case.split for case in site.cases))
    other = sorted(found - {words})
    return [f'the kept split was cut by "{other[0]}", now asked for is "{words}"'] if other else []


def _wrong_cases(rows: Mapping[str, tuple[str, str]], site: SiteFolder) -> list[str]:
    cases = {case.name: case for case in site.cases}
    both = [name for name in cases if name in rows]
    splits: dict[str, set[str]] = {}
    for patient, split in rows.values():
        splits.setdefault(patient, set()).add(split)
    wrong = {
        "new since the split was kept": [name for name in cases if name not in rows],
        "in the kept split but gone": [name for name in rows if name not in cases],
        "of another patient in the kept split": [
            name for name in both if rows[name][0] != cases[name].patient
        ],
        "in a kept split other than train, val, test": [
            name for name in both if rows[name][1] not in SPLITS
        ],
        "given for testing but kept for something else, or the reverse": [
            name
            for name in both
            if cases[name].split and (cases[name].split == "test") != (rows[name][1] == "test")
        ],
        "patients and in several kept splits": [
            patient for patient, found in splits.items() if len(found) > 1
        ],
    }
    return [f"{listed(names)}: {text}" for text, names in wrong.items() if names]
