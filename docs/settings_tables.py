"""Settings as tables of Markdown: keys with their defaults, what is allowed and what they mean."""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from polyclinic.catalog import BUILT_IN
from polyclinic.config.callables import meanings, settings_model
from polyclinic.config.chosen import TaskChoice
from polyclinic.config.printing import literal
from polyclinic.config.section import Section
from polyclinic.config.task import Task

NAMES = {
    "task.name": BUILT_IN.task,
    "network.name": BUILT_IN.network,
    "method.name": BUILT_IN.method,
    "method.then.name": BUILT_IN.finish,
    "labels": ("mask", *BUILT_IN.kind),
    "metrics": BUILT_IN.metric,
    "training.loss": ("auto", *BUILT_IN.loss),
}
"""What a key that names something from a table may name."""

NO_KEYS = ("built", "origin")
"""What a choice has beside the keys of its entry."""

LAST = ("data", "site", "training", "federation", "evaluation", "engine")
"""Sections of a study that follow what is chosen by name."""


def section(model: type[Section], path: str = "", about: str = "") -> Iterator[str]:
    """A table of a section's keys, then the sections in it; `about` says what the section is."""
    fields = {
        name: field
        for name, field in sorted(
            model.model_fields.items(),
            key=lambda item: LAST.index(item[0]) if item[0] in LAST else -1,
        )
        if name not in NO_KEYS and not field.exclude
    }
    inner = {name: found for name, field in fields.items() if (found := _inner(field))}
    meaning = meanings(model)
    rows = []
    for name, field in fields.items():
        if name not in inner:
            allowed = _allowed(field)
            if name in model.needs:
                other, wanted = model.needs[name]
                allowed += f"; only with `{other} = {literal(wanted)}`"
            if names := NAMES.get(f"{path}{name}", NAMES.get(name)):
                allowed = ", ".join(f"`{each}`" for each in names)
            default = _default(field, f"{meaning[name]} {about if name == 'name' else ''}")
            rows.append((f"`{name}`", default, allowed, meaning[name]))
    yield from table("key|default|allowed|meaning", rows)
    for name, (found, many) in inner.items():
        own = f"{path}{name}"
        heading = f"[[{own}]]" if many else f"[{own}]"
        yield f"\n### `{heading}`\n\n{meaning[name]}\n"
        yield from section(found, f"{own}.", meaning[name])


def settings(thing: Any, given: frozenset[str] = frozenset()) -> Iterator[str]:
    """A table of the settings of a method, network or finishing step, if it has any."""
    rows = list(_setting_rows(thing, given, ""))
    if rows:
        yield from table("setting|default|allowed|meaning", rows)


def summary(thing: Any) -> str:
    """The docstring in one line."""
    return " ".join((inspect.getdoc(thing) or "").split())


def code(value: Any) -> str:
    """A value as TOML."""
    return "–" if value in (None, (), {}) else f"`{literal(value)}`"


def table(heading: str, rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Rows under the columns that the heading names."""
    names = heading.split("|")
    filled = [index for index in range(len(names)) if any(row[index] for row in rows)]
    names, rows = [names[i] for i in filled], [[row[i] for i in filled] for row in rows]
    yield f"\n| {' | '.join(names)} |\n|{'---|' * len(names)}"
    for row in rows:
        cells = (cell.replace("|", "\\|") for cell in row)
        yield f"| {' | '.join(cells)} |"
    yield ""


def _setting_rows(thing: Any, given: frozenset[str], path: str) -> Iterator[Sequence[str]]:
    """A row for each setting; those of an inner table follow under its name.

    `thing` is a class or, for an inner table, the instance that holds its defaults.
    """
    owner = type(thing) if path else thing
    told = meanings(owner)
    for field in settings_model(owner, given, {}).model_fields.values():
        name = field.alias or ""
        default = getattr(thing, name) if path else field.default
        if is_dataclass(default):
            yield from _setting_rows(default, given, f"{path}{name}.")
        else:
            shown = "required" if field.is_required() else code(default)
            yield f"`{path}{name}`", shown, _allowed(field), told.get(name, "")


def _inner(field: FieldInfo) -> tuple[type[Section], bool] | None:
    """The section that a field holds, and whether it holds several of them."""
    for annotation in (field.annotation, *get_args(field.annotation)):
        if isinstance(annotation, type) and issubclass(annotation, Section):
            shown = Task if annotation is TaskChoice else annotation
            return shown, get_origin(field.annotation) is tuple
    return None


def _default(field: FieldInfo, meaning: str) -> str:
    named = re.search("by default `(.+?)`", meaning)
    if field.is_required() and named:  # filled in before the models see it
        return code(named[1])
    if field.is_required():
        return "–" if "by default the" in meaning or "by default made" in meaning else "required"
    return code(field.get_default(call_default_factory=True, validated_data={}))


def _allowed(field: FieldInfo) -> str:
    bounds = [words for each in field.metadata for words in _bounds(each)]
    return ", ".join([_words(field.annotation), *bounds])


def _words(annotation: Any) -> str:
    """What an annotation allows, in words."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        bounds = [words for each in inner[1:] for words in _bounds(each)]
        return ", ".join([_words(inner[0]), *bounds])
    if origin is Literal:
        return ", ".join(f"`{literal(value)}`" for value in inner)
    if origin in (Union, types.UnionType):
        return " or ".join(_words(each) for each in inner if each is not types.NoneType)
    if origin is tuple and inner[-1] is not Ellipsis:
        return f"{len(inner)} × {_words(inner[0])}"
    if origin is tuple:
        return f"list of {_words(inner[0])}"
    if origin in (dict, Mapping):
        return "table"
    words = {bool: "true, false", int: "whole number", float: "number", str: "text", Path: "path"}
    return words.get(annotation, "table" if is_dataclass(annotation) else "")


def _bounds(limit: Any) -> Iterator[str]:
    if isinstance(limit, FieldInfo):
        for each in limit.metadata:
            yield from _bounds(each)
    signs = {"gt": ">", "ge": "≥", "lt": "<", "le": "≤", "multiple_of": "a multiple of"}
    yield from (f"{sign} {getattr(limit, n):g}" for n, sign in signs.items() if hasattr(limit, n))
