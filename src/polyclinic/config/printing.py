"""A study as TOML, with every setting that has an effect."""

import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import tomli_w

from polyclinic.config.chosen import Choice, MethodChoice, NetworkChoice
from polyclinic.config.section import Section
from polyclinic.config.study import Study


def to_toml(study: Study) -> str:
    """All resolved settings of a study; reading the text again gives an equal study."""
    first = ("name", "seeds", "task", "data", "site", "network", "method")
    sections = {name: section for name, section in plain(study).items() if section not in ([], {})}
    ordered = {name: sections[name] for name in first if name in sections} | sections
    return "\n".join(_lines("", ordered)).strip() + "\n"


def literal(value: Any) -> str:
    """A value as TOML on one line; a table becomes an inline table."""
    value = plain(value)
    if isinstance(value, list):
        return f"[{', '.join(map(literal, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(_assignment(key, inner) for key, inner in value.items())}}}"
    if not isinstance(value, str | bool | int | float):
        return str(value)
    return tomli_w.dumps({"_": value}).removeprefix("_ = ").rstrip("\n")


def bare(value: Any) -> str:
    """The same for titles: text without quotes, the name of a table before its settings."""
    if isinstance(value, dict) and "name" in value:
        own = ", ".join(f"{key}={bare(each)}" for key, each in value.items() if key != "name")
        return f"{value['name']}({own})" if own else str(value["name"])
    return value if isinstance(value, str) else literal(value)


def plain(value: Any) -> Any:
    """The same value in TOML's own types; None and settings without effect are left out."""
    if isinstance(value, set | frozenset):
        return sorted(map(plain, value))
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, Enum):
        return plain(value.value)
    if isinstance(value, Path):
        return str(value)
    table = _table(value)
    if table is None:
        return value
    return {str(key): plain(inner) for key, inner in table.items() if inner is not None}


def _lines(path: str, table: dict[str, Any]) -> list[str]:
    """The lines of a table's own values, then its tables with their headings.

    tomli_w itself would put each number of a list on its own line and methods into inline tables.
    """
    own = {key: value for key, value in table.items() if not _has_heading(value)}
    lines = [_assignment(key, value) for key, value in own.items()]
    for key in (key for key in table if key not in own):
        inner = f"{path}.{_key(key)}" if path else _key(key)
        if isinstance(table[key], dict):
            lines += ["", f"[{inner}]", *_lines(inner, table[key])]
        else:
            for entry in table[key]:
                lines += ["", f"[[{inner}]]", *_lines(inner, entry)]
    return lines


def _has_heading(value: Any) -> bool:
    entries = value if isinstance(value, list) and value else [value]
    return all(isinstance(entry, dict) for entry in entries)


def _assignment(key: str, value: Any) -> str:
    return f"{_key(key)} = {literal(value)}"


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else literal(key)


def _table(value: Any) -> Mapping[str, Any] | None:
    """The keys of whatever is a table in TOML, and None for what is not."""
    if isinstance(value, MethodChoice):
        around = {"name": value.name, "title": value.title, "labels": value.labels}
        around["weighting"] = value.weighting
        return {**around, **value.settings, "weak": value.weak, "then": value.then}
    if isinstance(value, NetworkChoice):
        return {"name": value.name, "pretrained": value.pretrained, **value.settings}
    if isinstance(value, Choice):
        return {"name": value.name, **value.settings}
    if isinstance(value, Section):
        hidden = {name for name, field in type(value).model_fields.items() if field.exclude}
        return {
            name: each
            for name, each in value
            if name not in hidden and value.in_effect(name, dict(value))
        }
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in fields(value) if field.init}
    return value if isinstance(value, Mapping) else None
