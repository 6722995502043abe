"""Packages of the extra `formats`, imported when a file asks for them."""

from importlib import import_module
from typing import Any

from polyclinic.data.errors import UnreadableError


def needed(package: str) -> Any:
    """The package, or an UnreadableError that says how to install it."""
    try:
        return import_module(package)
    except ImportError as error:
        name = package.partition(".")[0]
        raise UnreadableError(
            f"needs the package {name}: pip install 'polyclinic[formats]'"
        ) from error
