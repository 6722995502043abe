"""What `polyclinic list` says of methods, networks and others, and of what is in a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from polyclinic.catalog import things_in
from polyclinic.config import Origin, Tables, describe
from polyclinic.config.mistakes import did_you_mean

THINGS = {
    "methods": ("method", "finish"),
    "networks": ("network",),
    "tasks": ("task",),
    "kinds": ("kind",),
    "metrics": ("metric",),
    "losses": ("loss",),
}


def listing(what: str, tables: Tables) -> Iterator[str]:
    """One line for each thing of that name, or for each that a study could name in that file."""
    if what.endswith(".py"):
        entries = list(_in_file(Path(what)))
    elif what in THINGS:
        entries = [entry for table in THINGS[what] for entry in _in_table(table, tables)]
    else:
        hint = did_you_mean(what, THINGS) or f"; there are {', '.join(THINGS)}"
        raise ValueError(f"cannot list {what!r}{hint}")
    first, second = (max((len(each[i]) for each in entries), default=0) for i in (0, 1))
    for name, origin, summary in entries:
        yield f"{name:<{first}}  {origin:<{second}}  {summary}"


def _in_table(table: str, tables: Tables) -> Iterator[tuple[str, str, str]]:
    for name in getattr(tables, table):
        shown = f"then {name}" if table == "finish" else name
        origin = str(tables.origins.get((table, name), Origin()))
        try:
            yield shown, origin, _summary(getattr(tables, table)[name])
        except ValueError as error:
            yield shown, origin, f"cannot be used: {error}"


def _in_file(file: Path) -> Iterator[tuple[str, str, str]]:
    origin = str(Origin(file=file))
    for table, name, thing in things_in(file):
        yield f"{table} {name}", origin, _summary(thing)


def _summary(thing: Any) -> str:
    return getattr(thing, "summary", None) or describe(thing)
