"""What studies can name on this machine, and what to tell about it."""

from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from polyclinic.config import Tables


def say(text: str) -> None:
    """Tell people something that is not the command's result."""
    typer.echo(text, err=True)


def tables() -> "Tables":
    """All that a study can name here; warnings tell what packages offer in vain."""
    from polyclinic.catalog import installed, left_out

    for sentence in left_out():
        typer.echo(f"warning: {sentence}", err=True)
    return installed()
