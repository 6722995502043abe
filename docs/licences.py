"""The licences of everything that constraints.txt pins, as installed packages state them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.metadata import PackageMetadata, PackageNotFoundError, metadata, requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from settings_tables import table

PINS = Path(__file__).parent.parent / "constraints.txt"
EXTRAS = ("", "train", "flower", "formats", "predict", "export", "serve", "docs", "dev")
"""From what every user has to what only development needs; a package stands under the first."""


def licences() -> Iterator[str]:
    """Every pinned package with its licence, by what it comes with."""
    yield "# Licences of dependencies\n"
    yield "Polyclinic is Apache-2.0. This is what each pinned package says of itself; one that"
    yield "several extras bring stands under the first of them. Nothing under the GPL"
    yield "comes with what users install; MedPy, which is, is an independent reference in tests."
    placed = _placed()
    pins = dict(line.split("==") for line in PINS.read_text().split())
    for extra in EXTRAS:
        rows = [
            (name, version, _licence(name))
            for name, version in pins.items()
            if placed.get(canonicalize_name(name), "dev") == extra
        ]
        if rows:
            yield f"\n## {f'`{extra}`' if extra else 'Always installed'}\n"
            yield from table("package|version|licence", rows)


def _placed() -> dict[str, str]:
    """The first extra that brings each package, through whatever brings it."""
    placed: dict[str, str] = {}
    for extra in EXTRAS:
        _place("polyclinic", {extra}, extra, placed, set())
    return placed


def _place(
    package: str, extras: set[str], under: str, placed: dict[str, str], seen: set[str]
) -> None:
    key = f"{package}{sorted(extras)}"
    if key in seen:
        return
    seen.add(key)
    if package != "polyclinic":
        placed.setdefault(package, under)
    try:
        needed = requires(package) or []
    except PackageNotFoundError:
        return
    for each in map(Requirement, needed):
        if not each.marker or any(each.marker.evaluate({"extra": extra}) for extra in extras):
            _place(canonicalize_name(each.name), {"", *each.extras}, under, placed, seen)


def _licence(name: str) -> str:
    """The licence by its short name: the expression, the classifier, or the first line of text."""
    try:
        about = metadata(name)
    except PackageNotFoundError:
        return "not installed here"
    if expression := about.get("License-Expression"):
        return str(expression)
    if classified := _classified(about):
        return classified
    return (about.get("License") or "not stated").strip().splitlines()[0]


def _classified(about: PackageMetadata) -> str:
    lines = about.get_all("Classifier") or []
    named = (re.match(r"License ::(?: OSI Approved ::)? (.+)", line) for line in lines)
    return ", ".join(match[1] for match in named if match and match[1] != "OSI Approved")
