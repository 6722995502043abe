"""polyclinic check-method: whether a method keeps the contract."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from polyclinic.cli.code import tables
from polyclinic.config.mistakes import did_you_mean

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


def method_named(text: str) -> "type[Method]":
    """The class that a name of the table, or a file and a class, stands for."""
    known = tables()
    try:
        return known.find("method", text)[0]
    except KeyError:
        hint = did_you_mean(text, known.method) or f"; there are {', '.join(known.method)}"
        advice = "or give a file and its class: mine.py:FedMine"
        raise ValueError(f"no method {text!r}{hint}; {advice}") from None
