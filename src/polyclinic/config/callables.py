"""The settings that a callable's own signature declares."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import partial
from typing import Any, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, create_model

from polyclinic.config.printing import literal, plain

GIVEN: Mapping[str, frozenset[str]] = {"network": frozenset({"channels", "classes"})}
"""Table → the parameters that the program gives itself, which are therefore no settings."""


def describe(thing: Any) -> str:
    """One line about an entry of a table: its summary and its settings with their defaults."""
    summary = getattr(thing, "summary", None) or _first_line(thing)
    if callable(thing):
        defaults = defaults_of(thing)
    else:
        defaults = {"resolution": getattr(thing, "resolution", None)}
    shown = ", ".join(
        f"{name} = {literal(value)}"
        for name, value in defaults.items()
        if value is not inspect.Parameter.empty and value is not None
    )
    return f"{summary} ({shown})".strip() if shown else str(summary)


def defaults_of(thing: Callable[..., Any]) -> dict[str, Any]:
    """The settings of a callable and their defaults; `Parameter.empty` where one is required."""
    settings = parameters(thing, frozenset().union(*GIVEN.values()))
    return {name: _default(thing, each) for name, each in settings.items()}


def parameters(
    thing: Callable[..., Any], given: frozenset[str] = frozenset()
) -> dict[str, inspect.Parameter]:
    """The parameters of a callable that are settings: named and not given by the program."""
    named = {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY}
    return {
        name: parameter
        for name, parameter in inspect.signature(thing).parameters.items()
        if parameter.kind in named and name not in given
    }


def settings_model(
    thing: Callable[..., Any], given: frozenset[str], around: Mapping[str, Any]
) -> type[BaseModel]:
    """A model of a callable's settings and of the keys around them; its aliases are their names."""
    hints = _hints(thing)
    settings = parameters(thing, given)
    if settings.keys() & around.keys():
        raise TypeError(f"{thing} must not call a parameter {' or '.join(around)}")
    # Aliases, because a setting may be called what a pydantic model calls its own (copy, json).
    declared: dict[str, Any] = {name: (hint, None) for name, hint in around.items()}
    for index, (name, parameter) in enumerate(settings.items()):
        field = _field(name, _default(thing, parameter))
        declared[f"setting_{index}"] = (hints.get(name, Any), field)
    config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)
    return create_model("Settings", __config__=config, **declared)


def completed(thing: Callable[..., Any], entry: Mapping[str, Any]) -> dict[str, Any]:
    """The entry, its inner tables filled up from the defaults that the callable has for them."""
    entry = dict(entry)
    for name, parameter in parameters(thing).items():
        default = _default(thing, parameter)
        if is_dataclass(default) and isinstance(entry.get(name), dict):
            inner = {key: plain(value) for key, value in vars(default).items()}
            entry[name] = inner | entry[name]
    return entry


def _field(name: str, default: Any) -> Any:
    required = default is inspect.Parameter.empty
    return Field(alias=name) if required else Field(default=default, alias=name)


def _default(thing: Any, parameter: inspect.Parameter) -> Any:
    if is_dataclass(thing):
        factories = {field.name: field.default_factory for field in fields(thing)}
        factory = factories.get(parameter.name, MISSING)
        if factory is not MISSING:
            return factory()
    return parameter.default


def _hints(thing: Any) -> dict[str, Any]:
    if isinstance(thing, partial):
        return _hints(thing.func)
    if isinstance(thing, type):
        owner = thing if is_dataclass(thing) else thing.__init__  # type: ignore[misc]
    else:
        owner = thing if inspect.isroutine(thing) else type(thing).__call__
    return get_type_hints(owner, include_extras=True)


def _first_line(thing: Any) -> str:
    text = (inspect.getdoc(thing) or "").partition("\n")[0]
    # A dataclass without a docstring gets its signature as one, which says nothing here.
    written = not text.startswith(f"{getattr(thing, '__name__', '')}(")
    return text if written else ""
