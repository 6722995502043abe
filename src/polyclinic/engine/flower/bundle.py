"""The app bundle that travels: a description that points to the installed Polyclinic, no code."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

import tomli_w

from polyclinic.runs import write_atomic

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


def files() -> Mapping[str, str]:
    """All files of the bundle of this version of Polyclinic."""
    description = tomllib.loads(_DESCRIPTION.format(version=version("polyclinic")))
    # As Flower writes it into the bundle: sites compare bytes.
    return {"pyproject.toml": tomli_w.dumps(description)}


def write_bundle(folder: Path) -> Path:
    """Write the bundle into a folder of its own, and give it."""
    for name, text in files().items():
        write_atomic(folder / name, text)
    return folder


def differences(folder: Path) -> list[str]:
    """What in a folder is not exactly as in the bundle of this version; empty where all is."""
    expected = {name: text.encode() for name, text in files().items()}
    found = {
        str(file.relative_to(folder)): file.read_bytes()
        for file in folder.rglob("*")
        if not file.is_dir()
    }
    return sorted(name for name in {*expected, *found} if expected.get(name) != found.get(name))
