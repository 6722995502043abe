"""Checks a table of the TOML file against a model and says in plain words what does not fit."""

import json
import re
from collections import ChainMap
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from polyclinic.config.mistakes import Mistake, nearest, unknown
from polyclinic.config.printing import literal
from polyclinic.config.study import Conditions
from polyclinic.config.tables import file_of

Model = TypeVar("Model", bound=BaseModel)
Place = tuple[str | int, ...]

# The first two are told by `_unknown_keys`, the third only follows from another mistake.
_TOLD = ("extra_forbidden", "unexpected_keyword_argument", "default_factory_not_called")
_WORDS = {
    "greater_than": "must be above {gt:g}",
    "greater_than_equal": "must be at least {ge:g}",
    "less_than": "must be below {lt:g}",
    "less_than_equal": "must be at most {le:g}",
    "multiple_of": "must be a multiple of {multiple_of:g}",
    "finite_number": "must be a finite number",
    "float_type": "must be a number",
    "int_type": "must be a whole number",
    "bool_type": "must be true or false",
    "string_type": "must be text",
    "path_type": "must be a path",
    "string_too_short": "must have at least {min_length} characters",
    "string_too_long": "must have at most {max_length} characters",
    "string_pattern_mismatch": "must look like {pattern}",
    "too_short": "must have a length of at least {min_length}",
    "too_long": "must have a length of at most {max_length}",
    "missing": "is required",
    "literal_error": "must be one of the allowed values",
    "enum": "must be one of the allowed values",
    "unknown_name": "there is no such {table}",
    "value_error": "{error}",
}
_WORDS |= dict.fromkeys(
    ("tuple_type", "list_type", "set_type", "frozen_set_type"), "must be a list"
)
_WORDS |= dict.fromkeys(("model_type", "dataclass_type", "dict_type"), "must be a table")


def check(
    model: type[Model],
    table: Mapping[str, Any],
    key: str,
    mistakes: list[Mistake],
    *,
    context: object = None,
    keys_of: type[BaseModel] | None = None,
) -> Model | None:
    """The validated table, or None after adding its mistakes under this dotted key.

    `keys_of` is a larger model whose keys are named as allowed.
    """
    found = list(_unknown_keys(keys_of or model, table, table, ()))
    checked = None
    try:
        # JSON has TOML's types, and its strict mode takes lists for tuples but no "4" for a 4.
        text = json.dumps(table, default=str)
        checked = model.model_validate_json(text, strict=True, context=context)
    except ValidationError as error:
        errors = error.errors(include_url=False)
        found += [_mistake(each, table) for each in errors if each["type"] not in _TOLD]
    merged = _merged(found)
    mistakes += [replace(each, key=f"{key}.{each.key}".strip(".")) for each in merged]
    return None if merged else checked


def dotted(table: Any, place: Place) -> str:
    """The place of a value as a dotted key, entries of a list called by their names."""
    text = ""
    for part in place:
        text += f".{part}" if isinstance(part, str) else addresses(table)[part]
        table = _inside(table, part)
    return text.removeprefix(".")


def addresses(entries: list[Any]) -> list[str]:
    """What follows the list's key to say which entry: .name, .name#2 for a second one, or #n."""
    seen: list[Any] = []
    texts = []
    for number, entry in enumerate(entries, start=1):
        name = entry.get("name") if isinstance(entry, dict) else None
        seen.append(name)
        again = f"#{seen.count(name)}" if seen.count(name) > 1 else ""
        if isinstance(name, str) and name and name.isprintable():
            shown = name.rpartition("/")[2] if file_of(name) else name
            texts.append(f".{shown}{again}")
        else:
            texts.append(f"#{number}")
    return texts


def _mistake(error: ErrorDetails, table: Mapping[str, Any]) -> Mistake:
    place = _real_place(error["loc"], table)
    context = error.get("ctx", {})
    if error["type"] == "missing" and isinstance(error["loc"][-1], str):
        above = _real_place(error["loc"][:-1], table)
        return Mistake(dotted(table, (*above, error["loc"][-1])), _WORDS["missing"])
    if error["type"] == "missing":
        return Mistake(dotted(table, place), "has too few values", literal(error["input"]))
    allowed = context.get("allowed") or re.findall(r"'([^']*)'", str(context.get("expected", "")))
    value = error["input"]
    return unknown(dotted(table, place), _words(error, context), literal(value), value, allowed)


def _words(error: ErrorDetails, context: Mapping[str, Any]) -> str:
    if error["type"] in _WORDS:
        return _WORDS[error["type"]].format(**context)
    return error["msg"].replace("Input should", "must")


def _real_place(place: Place, table: Any) -> Place:
    """The part of pydantic's place that is in the file: it also names the branches of a union."""
    for depth, part in enumerate(place):
        table = _inside(table, part)
        if table is None:
            return place[:depth]
    return place


def _inside(table: Any, part: str | int) -> Any:
    if isinstance(table, dict):
        return table.get(str(part))
    inside = isinstance(table, list) and isinstance(part, int) and part < len(table)
    return table[part] if inside else None


def _merged(mistakes: list[Mistake]) -> list[Mistake]:
    """One mistake per key: what the branches of a union want is joined by `or`."""
    by_key: dict[str, list[Mistake]] = {}
    for mistake in mistakes:
        by_key.setdefault(mistake.key, []).append(mistake)
    return [
        Mistake(
            key,
            " or ".join(dict.fromkeys(each.problem for each in group)).replace("or must be", "or"),
            group[0].value,
            tuple(name for each in group for name in each.allowed),
            next((each.meant for each in group if each.meant), ""),
        )
        for key, group in by_key.items()
    ]


def _unknown_keys(kind: Any, value: Any, table: Any, place: Place) -> Iterator[Mistake]:
    """The keys that no type at their place has, also in dataclasses, where pydantic is silent."""
    if isinstance(value, list):
        for index, entry in enumerate(value):
            yield from _unknown_keys(kind, entry, table, (*place, index))
    known = _keys(kind)
    if not isinstance(value, dict) or known is None:
        return
    for key, inner in value.items():
        if key in known:
            yield from _unknown_keys(known[key], inner, table, (*place, key))
        else:
            meant = nearest(key, known) or _elsewhere(key)
            where = dotted(table, (*place, key))
            yield Mistake(where, "there is no such setting", literal(inner), tuple(known), meant)


def _keys(kind: Any) -> dict[str, Any] | None:
    """The keys of a table type, also inside Optional or tuple; None if it is no table."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        given = {name: each for name, each in kind.model_fields.items() if not each.exclude}
        return {each.alias or name: each.annotation for name, each in given.items()}
    if isinstance(kind, type) and is_dataclass(kind):
        hints = get_type_hints(kind)
        return {field.name: hints[field.name] for field in fields(kind) if field.init}
    parts = [] if get_origin(kind) in (dict, Mapping) else map(_keys, get_args(kind))
    tables = [part for part in parts if part is not None]
    return dict(ChainMap(*tables)) if tables else None


def _elsewhere(key: str) -> str:
    """The full key of a setting that was looked for in the wrong section; empty if none has it."""
    sections = {name: _keys(kind) or {} for name, kind in (_keys(Conditions) or {}).items()}
    return next((f"{name}.{key}" for name, keys in sections.items() if key in keys), "")
