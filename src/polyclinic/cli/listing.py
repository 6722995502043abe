"""What `polyclinic list` says of methods, networks and others, of one method, or of a file."""

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from polyclinic.catalog import things_in
from polyclinic.config import Origin, Tables, describe
from polyclinic.config.callables import settings_of
from polyclinic.config.mistakes import did_you_mean
from polyclinic.config.printing import literal
from polyclinic.methods.costs import cost_lines, measured_costs

THINGS = {
    "methods": ("method", "finish"),
    "networks": ("network",),
    "tasks": ("task",),
    "kinds": ("kind",),
    "metrics": ("metric",),
    "losses": ("loss",),
}


def listing(what: str, tables: Tables) -> Iterator[str]:
    """One line for each thing of that name or in that file; all about a method by its name."""
    for table in ("method", "finish"):
        if what in getattr(tables, table):
            yield from _about(what, getattr(tables, table)[what])
            return
    if what.endswith(".py"):
        file = Path(what)
        origin = str(Origin(file=file))
        entries = [(f"{table} {key}", origin, _summary(it)) for table, key, it in things_in(file)]
    elif what in THINGS:
        entries = [entry for table in THINGS[what] for entry in _in_table(table, tables)]
    else:
        known = (*THINGS, *tables.method, *tables.finish)
        hint = did_you_mean(what, known) or f"; there are {', '.join(THINGS)}, or a method's name"
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


def _about(name: str, thing: type) -> Iterator[str]:
    """A method or finishing step: what it is, its paper, what it costs, what can be set."""
    yield f"{getattr(thing, 'title', '') or thing.__name__} ({name})"
    yield f"\n{inspect.getdoc(thing) or ''}"
    yield f"\n{inspect.getdoc(inspect.getmodule(thing)) or ''}"
    if name in measured_costs() and thing.__module__.startswith("polyclinic."):
        cost = measured_costs()[name]
        yield f"\nMeasured with {cost.network}, over FedAvg's round and model:"
        yield from (f"  {line}" for line in cost_lines(cost))
    shown = [(each.name, _default(each.default), each.meaning) for each in settings_of(thing)]
    if shown:
        yield "\nSettings:"
        first, second = (max(len(row[i]) for row in shown) for i in (0, 1))
        yield from (
            f"  {key:<{first}}  {default:<{second}}  {text}" for key, default, text in shown
        )


def _default(value: Any) -> str:
    if value is inspect.Parameter.empty:
        return "required"
    return "–" if value is None else literal(value)


def _summary(thing: Any) -> str:
    return getattr(thing, "summary", None) or describe(thing)
