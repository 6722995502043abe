"""What `polyclinic list` says of methods, networks, tasks, kinds and metrics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any

from polyclinic.config import describe
from polyclinic.engine.study import TABLES

THINGS: Mapping[str, Mapping[str, Any]] = {
    "methods": {**TABLES.method, **{f"then {n}": piece for n, piece in TABLES.finish.items()}},
    "networks": TABLES.network,
    "tasks": TABLES.task,
    "kinds": TABLES.kind,
    "metrics": TABLES.metric,
}


def listing(what: str) -> Iterator[str]:
    """One line for each thing of that name."""
    if what not in THINGS:
        near = get_close_matches(what, THINGS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(THINGS)}"
        raise ValueError(f"cannot list {what!r}; {hint}")
    things = dict(THINGS[what])
    width = max((len(name) for name in things), default=0)
    for name, thing in things.items():
        summary = getattr(thing, "summary", None) or describe(thing)
        yield f"{name:<{width}}  {summary}"
