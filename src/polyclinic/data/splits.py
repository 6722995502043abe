"""Which case trains, validates or tests: cut once, kept in a file, reused ever after.

A site's folder may hold its split: `splits.csv`, or `folds-<k>.csv` with a column for each fold;
`write_splits` puts it there when asked. A study writes into no site's folder: what it cuts it keeps
in a folder of its own, in a file named by the site and by what was cut and how.
"""

import csv
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from glob import escape
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from polyclinic.data.errors import Findings, UnreadableError, listed, refuse
from polyclinic.data.folder import SiteFolder, find_sites, keep_salt, read_site
from polyclinic.data.site_files import SPLITS, read_csv
from polyclinic.data.splitting import SplitRule, split_cases
from polyclinic.data.synthetic import DrawnSite

Table = Sequence[Sequence[str]]  # the lines of a CSV file, its header first


@dataclass(frozen=True)
class Splits:
    """Each case's split, and the table still to be written, if any."""

    of: Mapping[str, str]  # case → train, val or test
    file: Path | None = None
    table: Table = ()

    def write(self) -> None:
        """Keep the cut for all later runs; does nothing where it is given or kept already."""
        if self.file is not None:
            _write(self.file, self.table)


def splits_of(
    site: SiteFolder, rule: SplitRule, splits_folder: Path | None, mistakes: Findings
) -> Splits:
    """The site's own split where it is complete, else the kept one, else a new cut to write.

    Without a folder to keep it in, the same cut is made anew every time.
    """
    if rule.recut:
        site = replace(site, cases=tuple(replace(case, split=None) for case in site.cases))
    given = _given(site)
    if not rule.folds and ("val" in given.values() or (given and rule.validation == 0)):
        return Splits(given)
    kept = _kept_file(site, rule, splits_folder)
    if kept:
        return Splits(_read_kept(kept, site, rule, mistakes))
    try:
        columns = split_cases(site.cases, rule, site.name)
    except ValueError as error:
        mistakes.add(str(error))
        return Splits({})
    if splits_folder is None:
        return Splits(columns[rule.fold])
    table = _table(site, rule, columns, folder=str(site.folder.resolve()))
    return Splits(columns[rule.fold], splits_folder / _kept_name(site, rule), table)


class _Drawn(NamedTuple):
    name: str
    patient: str
    split: str | None


def drawn_splits(drawn: DrawnSite, rule: SplitRule, mistakes: Findings) -> dict[str, str]:
    """Case → split of a synthetic site: as drawn, or cut by the rule and kept nowhere."""
    given = None if rule.recut else dict(zip(drawn.names, drawn.splits, strict=True))
    if given and not rule.folds:
        return given
    cases = [
        _Drawn(name, patient, given[name] if given else None)
        for name, patient in zip(drawn.names, drawn.patients, strict=True)
    ]
    try:
        return split_cases(cases, rule, drawn.name)[rule.fold]
    except ValueError as error:
        mistakes.add(str(error))
        return {}


def write_splits(folder: Path, rule: SplitRule, volumes: Path | None = None) -> list[Path]:
    """Cut the cases of every site in `folder` and write the split into the site's own folder.

    A site that has a split already keeps it, and a DataError says so before anything is written.
    """
    files: dict[Path, Table] = {}
    errors: list[str] = []
    sites = [read_site(each, volumes=volumes) for each in find_sites(folder)]
    for site in sites:
        mistakes = Findings(site.name, site.folder)
        mistakes.include(site.mistakes)
        file = site.folder / rule.file_name
        if file.exists():
            mistakes.add("is there already; delete it to cut anew", file)
        elif "val" in _given(site).values():
            mistakes.add("has a complete split of its own")
        elif not site.mistakes:
            splits_of(site, rule, None, mistakes)
        errors += mistakes.lines
        if not mistakes.lines:
            files[file] = _table(site, rule, split_cases(site.cases, rule, site.name))
    refuse(errors)
    for site in sites:
        keep_salt(site, volumes)
    for file, table in files.items():
        _write(file, table)
    return list(files)


def check_kept(site: SiteFolder, mistakes: Findings) -> dict[str, str]:
    """Case → split as kept in the site's folder, empty where nothing is; misfits are noted."""
    file = _kept_file(site, SplitRule(), None)
    rows = _rows(file, site, "split", mistakes) if file else []
    return {row["case"]: row["split"] for row in rows}


def _given(site: SiteFolder) -> dict[str, str]:
    return {case.name: case.split for case in site.cases if case.split}


def _kept_file(site: SiteFolder, rule: SplitRule, splits_folder: Path | None) -> Path | None:
    """The file that has this cut: the site's own, a study's, or one of the cases as they were."""
    own = site.folder / rule.file_name
    if own.is_file() or splits_folder is None:
        return own if own.is_file() else None
    kept = splits_folder / _kept_name(site, rule)
    if kept.is_file():
        return kept
    wanted = {"folder": str(site.folder.resolve()), "rule": rule.words(bool(_given(site)))}
    for file in sorted(splits_folder.glob(f"{escape(site.name)}-*.csv")):
        with suppress(UnreadableError):
            _, rows = read_csv(file)
            if rows and wanted.items() <= rows[0].items():
                return file
    return None


def _kept_name(site: SiteFolder, rule: SplitRule) -> str:
    cases = sorted((case.name, case.patient, case.split or "") for case in site.cases)
    what = "\n".join((rule.words(bool(_given(site))), *map("\t".join, cases)))
    return f"{site.name}-{blake2b(what.encode(), digest_size=6).hexdigest()}.csv"


def _table(
    site: SiteFolder, rule: SplitRule, columns: Sequence[Mapping[str, str]], **more: str
) -> Table:
    words = rule.words(bool(_given(site)))
    rows = (
        (case.name, case.patient, *(of[case.name] for of in columns), words, *more.values())
        for case in site.cases
    )
    return (("case", "patient", *rule.columns, "rule", *more), *rows)


def _write(file: Path, table: Table) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    # Two studies that begin at once may cut the same.
    unfinished = file.with_name(f".{file.name}.{os.getpid()}")
    with unfinished.open("w", newline="", encoding="utf-8") as opened:
        csv.writer(opened).writerows(table)
    unfinished.replace(file)


def _read_kept(file: Path, site: SiteFolder, rule: SplitRule, mistakes: Findings) -> dict[str, str]:
    """The kept split, or a mistake for each way in which it does not fit any more."""
    column = rule.columns[rule.fold]
    rows = _rows(file, site, column, mistakes)
    words = rule.words(bool(_given(site)))
    other = sorted({row["rule"] for row in rows} - {words})
    if other:
        mistakes.add(
            f'the kept split was cut by "{other[0]}", now asked for is "{words}"; {_advice(file)}'
        )
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
    for text in _misfits({row["case"]: (row["patient"], row[column]) for row in rows}, site):
        mistakes.add(f"{text}; {_advice(file)}")
    return rows


def _advice(file: Path) -> str:
    return f"mend {file}, or delete it to cut anew (scores before and after do not compare)"


def _misfits(rows: Mapping[str, tuple[str, str]], site: SiteFolder) -> list[str]:
    cases = {case.name: case for case in site.cases}
    both = [name for name in cases if name in rows]
    splits: dict[str, set[str]] = {}
    for patient, split in rows.values():
        splits.setdefault(patient, set()).add(split)
    found = {
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
            patient for patient, several in splits.items() if len(several) > 1
        ],
    }
    return [f"{listed(names)}: {text}" for text, names in found.items() if names]
