"""A site approves studies: its people read what one means, or its file approves it in advance."""

import json
import logging
from collections.abc import Callable, Iterable
from datetime import datetime
from getpass import getuser
from pathlib import Path

from polyclinic.engine.flower.limits import fits
from polyclinic.engine.flower.protocol import WAITS
from polyclinic.runs import write_atomic

log = logging.getLogger("polyclinic.site")
MOST_WAITING = 20  # studies; more would fill the disk with what nobody reads


class Unapproved(ValueError):
    """Nobody at the site has approved the study yet."""

    refuses = WAITS


class Approvals:
    """What is approved at a site: a file for each study, beside its description in words.

    `in_advance` are hashes of studies, in which * stands for anything.
    """

    def __init__(self, state: Path, in_advance: Iterable[str]) -> None:
        self.folder = state / "studies"
        self.in_advance = tuple(in_advance)

    def check(self, study: str, describe: Callable[[], str]) -> None:
        """Refuse a study that is not approved; one that was never seen is shown in words."""
        file = self.description(study)
        if not file.exists() and len(self.waiting()) >= MOST_WAITING:
            raise Unapproved(f"{MOST_WAITING} studies wait for an approval already; look at these")
        if not file.exists():
            text = describe()
            write_atomic(file, text)
            log.warning("a study that this site has not seen:\n\n%s", text)
        if not fits(study, self.in_advance) and not self._approval(study).exists():
            raise Unapproved(
                f"the people at this site have not approved the study yet; its hash is {study}"
            )

    def description(self, study: str) -> Path:
        """Where a study that was asked for is described."""
        return self.folder / f"{study}.md"

    def seen(self) -> dict[str, str]:
        """The studies that were asked for, by hash, and what became of each, in words."""
        return {file.stem: self._standing(file.stem) for file in sorted(self.folder.glob("*.md"))}

    def waiting(self) -> list[str]:
        """The hashes of the studies that wait for an approval."""
        return [study for study, standing in self.seen().items() if standing == "waits"]

    def approve(self, study: str) -> None:
        """Note that a study is approved, when and by whom."""
        now = datetime.now().astimezone().isoformat(timespec="seconds")
        write_atomic(self._approval(study), json.dumps({"at": now, "by": getuser()}) + "\n")

    def withdraw(self, study: str) -> None:
        """Take an approval back: from now on every request of the study is refused."""
        self._approval(study).unlink(missing_ok=True)

    def named(self, beginning: str) -> str:
        """The hash that begins so, of those seen; ValueError where there is none, or several."""
        found = [study for study in self.seen() if study.startswith(beginning)]
        if len(found) != 1:
            known = ", ".join(each[:12] for each in self.seen()) or "none yet"
            raise ValueError(
                f"{beginning} is the beginning of {len(found)} studies that this site was asked "
                f"for ({known})"
            )
        return found[0]

    def _approval(self, study: str) -> Path:
        return self.folder / f"{study}.approved"

    def _standing(self, study: str) -> str:
        if fits(study, self.in_advance):
            return "approved in advance by allow.studies"
        try:
            given = json.loads(self._approval(study).read_text())
        except FileNotFoundError:
            return "waits"
        return f"approved by {given['by']} on {given['at']}"
