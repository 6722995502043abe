"""All checks on one method."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from polyclinic.contract.checks import CHECKS
from polyclinic.contract.trial import Trial, told
from polyclinic.contract.violation import Violation
from polyclinic.federation.method import Method


@dataclass(frozen=True)
class Finding:
    """One check and what the method breaks of it; nothing where it keeps it."""

    check: str
    broken: str = ""


def examine(kind: type[Method]) -> Iterator[Finding]:
    """Check after check, as they are done; runs are made once and thrown away at the end."""
    with tempfile.TemporaryDirectory() as folder:
        trial = Trial(kind, Path(folder))
        for name, check in CHECKS.items():
            try:
                check(trial)
            except Violation as violation:
                yield Finding(name, str(violation))
            except Exception as error:  # noqa: BLE001 (a stranger's code may raise anything)
                yield Finding(name, f"it stopped: {told(error)}")
            else:
                yield Finding(name)
