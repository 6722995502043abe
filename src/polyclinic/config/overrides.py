"""Settings given on the command line as key=value, put into the tables read from the file."""

import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from polyclinic.config.callables import parameters
from polyclinic.config.checking import addresses
from polyclinic.config.choices import AROUND_CHOICE, AROUND_METHOD
from polyclinic.config.data_settings import SiteSettings
from polyclinic.config.mistakes import Mistake, nearest
from polyclinic.config.tables import Tables

LISTS = ("site", "method", "then")
"""The keys of the lists whose entries are called by name."""


def apply_overrides(
    tables_of_file: dict[str, Any],
    overrides: Sequence[str],
    tables: Tables,
    mistakes: list[Mistake],
) -> set[str]:
    """Changes the file's tables in place and gives the dotted keys that were set."""
    changed: set[str] = set()
    for text in overrides:
        key, sign, value = text.partition("=")
        parts = key.strip()
        if not sign or not all(part.strip() for part in parts.split(".")):
            problem = "must look like key=value, for example training.batch=4"
            mistakes.append(Mistake(f"--set {text}", problem))
            continue
        override = Setting(f"--set {text}", parse_value(value), tables)
        override.put(tables_of_file, "", parts)
        mistakes += override.mistakes
        changed.update(override.changed)
        shape(tables_of_file)
    return changed


def shape(study: dict[str, Any]) -> None:
    """Turns bare names into tables and single entries into lists, in place."""
    for key in ("task", "network"):
        if key in study:
            study[key] = _entry(study[key])
    for key in ("site", "method"):
        study[key] = _entries(study.get(key, []))
    for entry in study["method"]:
        if isinstance(entry, dict) and "then" in entry:
            entry["then"] = _entries(entry["then"])


def entry_keys(entries: list[Any]) -> list[str]:
    """What the entries of the study's methods are called in the file."""
    return [f"method{address}" for address in addresses(entries)]


def leaves(path: str, table: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Every value of a table in tables, lists being values, by its dotted key."""
    for key, value in table.items():
        inner = f"{path}.{key}".strip(".")
        if isinstance(value, dict):
            yield from leaves(inner, value)
        else:
            yield inner, value


def parse_value(text: str) -> Any:
    """The text as a TOML value, and the text itself where it is none."""
    try:
        parsed = tomllib.loads(f"value = {text}")
    except ValueError:
        return text.strip()
    return parsed["value"] if len(parsed) == 1 else text.strip()


@dataclass
class Setting:
    """A value for a dotted key, what it changed, and what was wrong; `said` is how it was given."""

    said: str
    value: Any
    tables: Tables
    changed: list[str] = field(default_factory=list)
    mistakes: list[Mistake] = field(default_factory=list)

    def put(self, table: dict[str, Any], above: str, rest: str) -> None:
        """Sets the value at the rest of the key, making tables on the way."""
        head, _, tail = rest.partition(".")
        key = f"{above}.{head}".strip(".")
        if not tail:
            table[head] = self.value
            self.changed.append(key)
        elif head in LISTS and isinstance(table.get(head), list):
            self._put_in_entries(table[head], key, head, tail)
        elif isinstance(table.setdefault(head, {}), dict):
            self.put(table[head], key, tail)
        else:
            self.mistakes.append(Mistake(self.said, f"{key} is not a table"))

    def _put_in_entries(self, entries: list[Any], key: str, sort: str, rest: str) -> None:
        """Sets the value in the entries that the key names, else in all that have the setting."""
        pairs = zip(addresses(entries), entries, strict=True)
        called = {address: entry for address, entry in pairs if isinstance(entry, dict)}
        names = [name for pair in called.items() for name in _names(*pair)]
        name = max((name for name in names if rest.startswith(f"{name}.")), key=len, default=None)
        inner = rest.removeprefix(f"{name}.")
        setting = inner.partition(".")[0]
        for address, entry in called.items():
            has_it = setting in self._settings(sort, entry, setting)
            if name in _names(address, entry) or (name is None and has_it):
                self.put(entry, f"{key}{address}", inner)
        if not self.changed and not self.mistakes:
            self._nothing_to_set(entries, sort, setting)

    def _nothing_to_set(self, entries: list[Any], sort: str, setting: str) -> None:
        settings = [name for entry in entries for name in self._settings(sort, entry, setting)]
        allowed = tuple(dict.fromkeys([*map(_name, entries), *settings]))
        problem = f"there is no {sort} of this name or with this setting"
        meant = nearest(setting, allowed)
        self.mistakes.append(Mistake(self.said, problem, "", allowed, meant))

    def _settings(self, sort: str, entry: Any, setting: str) -> list[str]:
        """What can be set in an entry; anything if its name is unknown, which is told elsewhere."""
        if sort == "site":
            return list(SiteSettings.model_fields)
        around = AROUND_METHOD if sort == "method" else AROUND_CHOICE
        table = "method" if sort == "method" else "finish"
        try:
            return [*around, *parameters(self.tables.find(table, _name(entry))[0])]
        except (KeyError, ValueError):
            return [setting]


def _name(entry: Any) -> str:
    return str(entry.get("name", "")) if isinstance(entry, dict) else ""


def _names(address: str, entry: Any) -> tuple[str, ...]:
    """What an entry is called: its address, its name, and for the first of a name also name#1."""
    own = address.removeprefix(".")
    return own, _name(entry), own if "#" in own else f"{own}#1"


def _entry(value: Any) -> Any:
    return {"name": value} if isinstance(value, str) else value


def _entries(value: Any) -> list[Any]:
    return [_entry(each) for each in (value if isinstance(value, list) else [value])]
