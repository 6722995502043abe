"""Packages that only some files need, imported when such a file is read."""

from importlib import import_module
from typing import Any

from polyclinic.data.errors import UnreadableError


def needed(package: str) -> Any:
    """The package, or an UnreadableError that says how to install it."""
    try:
        return import_module(package)
    except ImportError as error:
        name = package.partition(".")[0]
        extra = "train" if name == "h5py" else "formats"
        raise UnreadableError(f"needs {name}: pip install 'polyclinic[{extra}]'") from error
