"""What can be said before any command: --version."""

from typing import Annotated

import typer

from polyclinic import __version__


def _tell_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"polyclinic {__version__}")
        raise typer.Exit


def options(
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", callback=_tell_version, is_eager=True),
    ] = False,
) -> None:
    """Personalized federated medical image segmentation."""
