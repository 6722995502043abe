"""The settings that a callable's own signature declares, and what the code says they mean."""

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import partial
from typing import Any, NamedTuple, get_type_hints

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


class Setting(NamedTuple):
    """A setting of a method, with its path where it stands in an inner table."""

    name: str
    default: Any
    meaning: str


def settings_of(thing: Any, path: str = "") -> Iterator[Setting]:
    """The settings of a class, those of inner tables under their names.

    `thing` is a class or, for an inner table, the instance that holds its defaults.
    """
    owner = type(thing) if path else thing
    told = meanings(owner)
    for name, usual in defaults_of(owner).items():
        default = getattr(thing, name) if path else usual
        if is_dataclass(default):
            yield from settings_of(default, f"{path}{name}.")
        else:
            yield Setting(f"{path}{name}", default, told.get(name, ""))


def meanings(thing: Any) -> dict[str, str]:
    """The docstring after each attribute of a class and its bases, by name."""
    found: dict[str, str] = {}
    for owner in reversed(getattr(thing, "__mro__", ())):
        if owner.__module__.partition(".")[0] not in ("builtins", "pydantic", "typing", "torch"):
            found |= _own_meanings(owner)
    return found


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
        default = _default(thing, parameter)
        given_default = {} if default is inspect.Parameter.empty else {"default": default}
        field = Field(alias=name, **given_default)
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


def _own_meanings(owner: type) -> dict[str, str]:
    try:
        (node,) = ast.parse(textwrap.dedent(inspect.getsource(owner))).body
    except OSError:  # written where no file is
        return {}
    assert isinstance(node, ast.ClassDef)
    return {
        ast.unparse(field.target): ast.literal_eval(text.value)
        for field, text in zip(node.body, node.body[1:], strict=False)
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr)
    }
