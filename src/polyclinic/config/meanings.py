"""What settings mean: the line that stands below each of them in the code."""

import ast
import inspect
import textwrap
from collections.abc import Iterator
from dataclasses import is_dataclass
from typing import Any, NamedTuple

from polyclinic.config.callables import defaults_of


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
