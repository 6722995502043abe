"""What site.toml says that values or colours of masks and labels stand for."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from polyclinic.data.readers import LARGEST

TRANSPARENT = "transparent"  # the colour of a pixel that is fully so
SOFT = "half transparent"  # the edge of a stroke; no colour that could have a name


@dataclass(frozen=True)
class Codes:
    """What a file's values or colours stand for: names of classes or regions, or `unlabelled`."""

    values: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    colours: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # "#rrggbb", small letters


def read_codes(table: Mapping[str, Any], place: str, errors: list[str]) -> Codes:
    """The tables `values` and `colours`; what is wrong with them is added to the errors."""
    codes: dict[str, dict[Any, tuple[str, ...]]] = {"values": {}, "colours": {}}
    if place:
        errors += [
            f'no key "{place}{key}" (allowed: values, colours)' for key in {*table} - {*codes}
        ]
    for key, found in codes.items():
        entries = table.get(key, {})
        if not isinstance(entries, dict):
            errors.append(f"{place}{key} must be a table, such as {_EXAMPLES[key]}")
            continue
        for word, names in entries.items():
            code = _value(word) if key == "values" else _colour(word)
            if code is None:
                wanted = f"whole numbers, 0–{LARGEST}" if key == "values" else 'like "#ff0000"'
                errors.append(f'{place}{key} has "{word}"; {key} are {wanted}')
            elif not read_names(names):
                errors.append(f"{place}{key} must give {word} a name or a list of names")
            else:
                found[code] = read_names(names)
    return Codes(codes["values"], codes["colours"])


def read_names(value: Any) -> tuple[str, ...]:
    """A name or a list of names, as names; empty where it is neither."""
    names = value if isinstance(value, list) else [value]
    return tuple(names) if all(isinstance(name, str) for name in names) else ()


_EXAMPLES = {
    "values": 'values = { 0 = "background", 255 = "vessel" }',
    "colours": 'colours = { "#ff0000" = "rim" }',
}


def _value(word: str) -> int | None:
    return int(word) if word.isascii() and word.isdecimal() and int(word) <= LARGEST else None


def _colour(word: str) -> str | None:
    low = word.casefold()
    return low if low == TRANSPARENT or re.fullmatch("#[0-9a-f]{6}", low) else None
