"""Which states of the sites the server believes in."""

import json
import secrets
from hashlib import sha256
from typing import Any

from polyclinic.engine.checkpoint import Checkpoint
from polyclinic.engine.flower.protocol import NO_STATE
from polyclinic.runs import RunError, write_atomic
from polyclinic.runs.files import complete_lines


class Versions:
    """Which state of each site the server believes in after each round; kept in a file."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.file = checkpoint.folder / "sites.json"
        rounds = checkpoint.rounds
        # Before the first round is finished no site may have been asked for anything.
        kept = self._kept() if rounds and (self.file.exists() or rounds[0] > 0) else {}
        self.run: str = kept.get("run") or secrets.token_hex(8)
        self.of: dict[str, dict[int, int]] = {
            site: {int(number): version for number, version in versions.items()}
            for site, versions in kept.get("versions", {}).items()
        }

    def before(self, site: str, since: int) -> int:
        """The version in force at a site after round `since`."""
        rounds = [number for number in self.of.get(site, {}) if number <= since]
        return self.of[site][max(rounds)] if rounds else NO_STATE

    def note(self, site: str, number: int, version: int) -> None:
        """A site's message of this round was accepted, so its state is believed in."""
        self.of.setdefault(site, {})[number] = version
        text = json.dumps({"run": self.run, "versions": self.of})
        write_atomic(self.file, f"{text}\n{sha256(text.encode()).hexdigest()}\n")

    def _kept(self) -> dict[str, Any]:
        """What the file says: a line of JSON, then its checksum."""
        text, checksum = [*complete_lines(self.file), "", ""][:2]
        if sha256(text.encode()).hexdigest() != checksum:
            raise RunError(
                f"{self.file} is damaged or lost, so nobody knows which states of the sites the "
                "run goes on from; bring it back from a backup, or start afresh with --fresh"
            )
        return dict(json.loads(text))

    def forget_from(self, number: int) -> None:
        """This round begins anew: what an interrupted attempt left is not believed in."""
        for versions in self.of.values():
            for later in [each for each in versions if each >= number]:
                del versions[later]
