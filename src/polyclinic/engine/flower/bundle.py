"""The app bundle that travels: a description that points to the installed Polyclinic, no code."""

from __future__ import annotations

import tomllib
from importlib.metadata import version
from pathlib import Path

import tomli_w

from polyclinic.runs import write_atomic

FILE = "pyproject.toml"
_DESCRIPTION = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "polyclinic-federation"
version = "{version}"
description = "Points to the Polyclinic that is installed; carries no code"
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "polyclinic"

[tool.flwr.app.components]
serverapp = "polyclinic.engine.flower.server_app:app"
clientapp = "polyclinic.engine.flower.site_app:app"

[tool.flwr.app.config]
study = ""
runs = ""
attempt = ""
coordinator = 0
resume = false
fresh = false
insecure = false
"""


def description() -> str:
    """The only file of the bundle, of this version of Polyclinic, as Flower itself writes it."""
    return tomli_w.dumps(tomllib.loads(_DESCRIPTION.format(version=version("polyclinic"))))


def write_bundle(folder: Path) -> Path:
    """Write the bundle into a folder of its own, and give it."""
    write_atomic(folder / FILE, description())
    return folder


def differences(folder: Path) -> list[str]:
    """What in a folder is not, to the byte, the bundle of this version; empty where all is."""
    files = {str(f.relative_to(folder)): f for f in folder.rglob("*") if not f.is_dir()}
    same = FILE in files and files[FILE].read_bytes() == description().encode()
    return sorted({FILE, *files} - ({FILE} if same else set()))
