"""The two small files beside a site's images: `cases.csv` and `site.toml`."""

import csv
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from polyclinic.config.mistakes import did_you_mean
from polyclinic.config.reading import parsed_toml
from polyclinic.config.task import AT_A_SITE
from polyclinic.data.code_tables import Codes, read_codes, read_names
from polyclinic.data.errors import Findings, UnreadableError
from polyclinic.data.formats.volume import AXES, Axis

SPLITS = ("train", "val", "test")
COLUMNS = ("case", "patient", "split")
WORDS = ("name", "task", "labels", "axis", "modality")
KEYS = (*WORDS, "spacing", "stored_window", *AT_A_SITE, "annotates", "values", "colours", "weak")


@dataclass(frozen=True)
class CaseRow:
    """A line of `cases.csv`; the patient is the case itself where the column is missing."""

    case: str
    patient: str
    split: str | None


@dataclass(frozen=True)
class SiteToml:
    """What `site.toml` says; None where it says nothing."""

    name: str | None = None
    task: str | None = None
    labels: str | None = None  # the kind of label the site trains on
    spacing: tuple[float, float] | None = None  # size of a pixel in the files, rows and columns
    # What of the task is otherwise here: `fit`, `normalisation` and what belongs to it; unchecked.
    preparation: dict[str, Any] = field(default_factory=dict)
    axis: Axis | None = None  # along which slices follow each other; None: as the format has it
    modality: str | None = None  # the only one that DICOM files may have
    stored_window: bool = False  # whether DICOM images are seen through their own window
    annotates: tuple[str, ...] = ()  # the classes and regions that it tells apart; empty: all
    masks: Codes = field(default_factory=Codes)
    weak: Codes = field(default_factory=Codes)  # of label files


def read_cases(path: Path, mistakes: Findings) -> dict[str, CaseRow] | None:
    """The rows of `cases.csv` by case, or None where there is no such file."""
    if not path.is_file():
        return None
    try:
        header, lines = read_csv(path)
    except UnreadableError as error:
        mistakes.add(str(error), path)
        return None
    unknown = [column for column in header if column not in COLUMNS]
    if "case" not in header or unknown:
        hint = did_you_mean(unknown[0], COLUMNS) if unknown else ""
        found = ", ".join(header) or "nothing"
        mistakes.add(f"columns are case, patient, split; found {found}{hint}", path)
        return None
    rows: dict[str, CaseRow] = {}
    for line in lines:
        row = CaseRow(line["case"], line.get("patient") or line["case"], line.get("split") or None)
        if row.case in rows:
            mistakes.add(f"case {row.case} stands in it twice", path)
        if row.split not in (*SPLITS, None):
            hint = did_you_mean(row.split or "", SPLITS)
            mistakes.add(
                f'case {row.case} has split "{row.split}", not train, val or test{hint}', path
            )
        rows[row.case] = row
    return rows


def read_csv(path: Path) -> tuple[list[str], list[dict[str, str]]]:
    """Column names and rows of a CSV file, without blanks around anything."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file, skipinitialspace=True, restval="")
            header = [name.strip() for name in reader.fieldnames or ()]
            reader.fieldnames = header
            return header, [{key: row[key].strip() for key in header} for row in reader]
    except (UnicodeDecodeError, csv.Error) as error:
        raise UnreadableError(f"cannot be read, save it as CSV in UTF-8: {error}") from error


def read_site_toml(path: Path) -> tuple[SiteToml, list[str]]:
    """What `site.toml` says (nothing where it is missing) and its errors."""
    if not path.is_file():
        return SiteToml(), []
    try:
        table = parsed_toml(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        return SiteToml(), [f"cannot be read: {error}"]
    errors = [*_word_errors(table)]
    spacing = _spacing(table.get("spacing", 1.0))
    if spacing is None:
        errors.append(f"spacing must be one or two numbers above 0, got {table['spacing']!r}")
    annotates = read_names(table.get("annotates", ["all"]))
    if not annotates or not isinstance(table.get("annotates", []), list):
        errors.append(f"annotates must be a list of classes or regions, got {table['annotates']!r}")
    masks, weak = read_codes(table, "", errors), Codes()
    if isinstance(table.get("weak", {}), dict):
        weak = read_codes(table.get("weak", {}), "weak.", errors)
    else:
        errors.append(f"weak must be a table with values or colours, got {table['weak']!r}")
    if errors:
        return SiteToml(), errors
    return SiteToml(
        **{key: table[key] for key in (*WORDS, "stored_window") if key in table},
        spacing=spacing if "spacing" in table else None,
        preparation={key: table[key] for key in AT_A_SITE if key in table},
        annotates=annotates if "annotates" in table else (),
        masks=masks,
        weak=weak,
    ), []


def _word_errors(table: dict[str, Any]) -> Iterator[str]:
    for key, value in table.items():
        if key not in KEYS:
            yield f'no key "{key}" (allowed: {", ".join(KEYS)}){did_you_mean(key, KEYS)}'
        elif key == "stored_window" and not isinstance(value, bool):
            yield f"{key} must be true or false, got {value!r}"
        elif key in WORDS and not isinstance(value, str):
            yield f"{key} must be a word in quotes, got {value!r}"
        elif key == "axis" and value not in AXES:
            yield f'no axis "{value}" (allowed: {", ".join(AXES)}){did_you_mean(value, AXES)}'
    name = table.get("name", "site")
    # The name becomes part of file names in the run folder.
    if isinstance(name, str) and (Path(name).name != name or name.startswith(".")):
        yield f'name "{name}" cannot be a file\'s name'


def _spacing(value: Any) -> tuple[float, float] | None:
    sizes = value if isinstance(value, list) else [value, value]
    numbers = all(isinstance(size, int | float) and not isinstance(size, bool) for size in sizes)
    if len(sizes) != 2 or not numbers or min(sizes) <= 0:
        return None
    return float(sizes[0]), float(sizes[1])
