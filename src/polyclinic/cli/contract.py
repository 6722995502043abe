"""polyclinic check-method: whether a method keeps the contract."""

from __future__ import annotations

import importlib.util
import sys
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from polyclinic.federation.method import Method


def check_method(
    method: Annotated[
        str, typer.Argument(help="A method's name, or a file and a class: mine.py:FedMine.")
    ],
) -> None:
    """Check that a method keeps the contract, and say in words what it breaks."""
    from polyclinic.contract import examine

    broken, seen = [], set[str]()
    for finding in examine(method_named(method)):
        typer.echo(f"{'error' if finding.broken else 'ok':<7}{finding.check}")
        if finding.broken:
            broken.append(finding)
            again = finding.broken in seen
            typer.echo(f"       {'as above' if again else finding.broken}")
            seen.add(finding.broken)
    if broken:
        typer.echo(f"{method} breaks the contract in {len(broken)} of its points")
        sys.exit(1)
    typer.echo(f"{method} keeps the contract")


def method_named(text: str) -> type[Method]:
    """The class that a name of the table, or a file and a class, stands for."""
    from polyclinic.methods import METHODS

    path, colon, name = text.rpartition(":")
    if colon:
        return _from_file(Path(path), name)
    if text not in METHODS:
        near = get_close_matches(text, METHODS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(METHODS)}"
        raise ValueError(f"no method {text!r}; {hint} A file and its class: mine.py:FedMine")
    return METHODS[text]


def _from_file(path: Path, name: str) -> type[Method]:
    from polyclinic.federation.method import Method

    if not path.is_file():
        raise ValueError(f"there is no file {path}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ValueError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # dataclasses and pickle look there
    spec.loader.exec_module(module)
    found = getattr(module, name, None)
    if not (isinstance(found, type) and issubclass(found, Method)):
        kinds = [n for n, each in vars(module).items() if _is_method(each, path.stem)]
        raise ValueError(f"{path} has no method {name}; it has {', '.join(kinds) or 'none'}")
    return found


def _is_method(thing: object, module: str) -> bool:
    from polyclinic.federation.method import Method

    return isinstance(thing, type) and issubclass(thing, Method) and thing.__module__ == module
