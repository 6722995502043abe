"""Objects of a script or a notebook that stand in a study where a file would have names."""

import sys
from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, cast

from polyclinic.catalog import BUILT_IN, checked
from polyclinic.config import Tables
from polyclinic.config.printing import plain
from polyclinic.evaluation import Metric

TABLES = ("network", "method", "finish", "metric", "loss")


class Given:
    """Tables that also have the objects given in place of names.

    A class from a file is named mine.py:FedMine, which other processes understand, too; all else
    is known in this process only, by the name that it was defined with.
    """

    def __init__(self, tables: Tables, things: Iterable[Any] = ()) -> None:
        self._own = {table: _Own(table) for table in TABLES}
        more: dict[str, Any] = {
            table: ChainMap(cast(Any, own), getattr(tables, table))
            for table, own in self._own.items()
        }
        self.tables = replace(tables, **more)
        for thing in things:
            for table in TABLES:
                if _fits(thing, table):
                    self._name(thing, table)

    def named(self, study: Mapping[str, Any]) -> dict[str, Any]:
        """The study as TOML would give it."""
        named = {
            key: dict(each) if isinstance(each, Mapping) else each for key, each in study.items()
        }
        if "network" in named:
            named["network"] = self._entry(named["network"], "network")
        if "method" in named:
            named["method"] = [self._method(each) for each in _listed(named["method"])]
        training, evaluation = named.get("training"), named.get("evaluation")
        if isinstance(training, dict) and "loss" in training:
            training["loss"] = self._name(training["loss"], "loss")
        if isinstance(evaluation, dict) and "metrics" in evaluation:
            metrics = _listed(evaluation["metrics"])
            evaluation["metrics"] = [self._name(each, "metric") for each in metrics]
        return plain(named)

    def unreachable(self) -> list[str]:
        """The names of what no other process could import."""
        things = [item for own in self._own.values() for item in own.things.items()]
        return [name for name, thing in things if not _importable(_code(thing))]

    def _method(self, entry: Any) -> Any:
        entry = self._entry(entry, "method")
        if isinstance(entry, dict) and "then" in entry:
            entry["then"] = [self._entry(each, "finish") for each in _listed(entry["then"])]
        return entry

    def _entry(self, entry: Any, table: str) -> Any:
        """A name, or a table with a name; what an instance was made with becomes settings."""
        around = dict(entry) if isinstance(entry, Mapping) else {"name": entry}
        thing = around.get("name")
        if isinstance(thing, str) or not _is_code(thing):
            return around if isinstance(entry, Mapping) else entry
        made = is_dataclass(thing) and not isinstance(thing, type)
        settings = {each.name: getattr(thing, each.name) for each in fields(thing)} if made else {}  # type: ignore[arg-type]
        return {**settings, **around, "name": self._name(type(thing) if made else thing, table)}

    def _name(self, thing: Any, table: str) -> Any:
        if isinstance(thing, str) or not _is_code(thing):
            return thing
        built_in = (name for name, known in getattr(BUILT_IN, table).items() if known is thing)
        name = next(built_in, None) or _name_in_file(thing)
        if name is None:
            name = thing.title if isinstance(thing, Metric) else thing.__name__
            if (
                name in getattr(self.tables, table)
                and self._own[table].things.get(name) is not thing
            ):
                raise ValueError(f"two things in the study are called {name}; rename one of them")
            self._own[table].things[name] = thing
        return name


@dataclass(frozen=True, eq=False)
class _Own(Mapping[str, Any]):
    """Things by name; what cannot be in the table is told when a study takes it up."""

    table: str
    things: dict[str, Any] = field(default_factory=dict)

    def __iter__(self) -> Iterator[str]:
        return iter(self.things)

    def __len__(self) -> int:
        return len(self.things)

    def __contains__(self, name: object) -> bool:
        return name in self.things

    def __getitem__(self, name: str) -> Any:
        return checked(self.things[name], self.table)


def _is_code(thing: Any) -> bool:
    return callable(thing) or is_dataclass(thing)


def _code(thing: Any) -> Any:
    return thing.function if isinstance(thing, Metric) else thing


def _fits(thing: Any, table: str) -> bool:
    try:
        checked(thing, table)
    except ValueError:
        return False
    return True


def _name_in_file(thing: Any) -> str | None:
    """mine.py:FedMine for what stands at the top of a file that is imported by its own name."""
    name = getattr(thing, "__qualname__", "")
    module = sys.modules.get(getattr(thing, "__module__", ""))
    file = Path(getattr(module, "__file__", None) or "")
    if module is None or module.__name__ != file.stem or getattr(module, name, None) is not thing:
        return None
    return f"{file.resolve()}:{name}"


def _importable(thing: Any) -> bool:
    """Whether a process that was started anew could find this."""
    module = sys.modules.get(thing.__module__)
    return "<locals>" not in thing.__qualname__ and hasattr(module, "__file__")


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]
