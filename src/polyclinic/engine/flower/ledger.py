"""The egress ledger: a line for everything that left a site, chained so that no line can change."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polyclinic.runs.files import append_lines, complete_lines

if TYPE_CHECKING:  # it brings torch, and who only reads a ledger needs none
    from polyclinic.engine.flower.wire import Payload

START = "0" * 64


class LedgerBroken(ValueError):
    """Which line of a ledger is broken, and how to go on."""

    refuses = "ledger"


@dataclass(frozen=True)
class Ledger:
    """A file of JSON lines; each has the hash of the line before it and its own."""

    path: Path
    to: str = ""  # the address that everything goes to, for the lines to come

    def add(self, payload: "Payload", facts: Mapping[str, Any]) -> bytes:
        """Note a payload that is about to leave; gives its bytes once the line is on disk.

        `content` is the hash of all these bytes, `sent` their number, `bytes` that of the tensors.
        """
        data = payload.to_bytes()
        line = {
            "at": datetime.now().astimezone().isoformat(timespec="seconds"),
            **({"to": self.to} if self.to else {}),
            **facts,
            "bytes": payload.nbytes,
            "arrays": payload.contents(),
            "sent": len(data),
            "content": hashlib.sha256(data).hexdigest(),
            "before": self.head(),
        }
        line["hash"] = _hash(line)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        append_lines(self.path, json.dumps(line, ensure_ascii=False) + "\n")
        return data

    def lines(self) -> list[dict[str, Any]]:
        """All lines as they stand; LedgerBroken where one is none."""
        return self._read(complete_lines(self.path))

    def head(self) -> str:
        """The hash of the last line: who has noted it can tell whether lines were cut off."""
        last = self._read(complete_lines(self.path)[-1:])
        return str(last[0]["hash"]) if last else START

    def refuse_broken(self) -> None:
        """Raise an error that names every mistake, and how to go on."""
        if found := self.mistakes():
            advice = (
                f"nothing leaves a site without a sound ledger; look into it, then move {self.path}"
                " aside, which keeps what it says, and start again: a new ledger begins, and with "
                "it the count of ε"
            )
            raise LedgerBroken("\n".join([*found[:10], advice]))

    def mistakes(self) -> list[str]:
        """What shows that somebody changed, removed or inserted lines; empty where nobody did."""
        found = []
        before = START
        for number, text in enumerate(complete_lines(self.path), start=1):
            try:
                line = _parsed(text)
            except ValueError:
                found.append(f"line {number} of {self.path} is not a line of a ledger")
                continue
            own, previous = line.pop("hash"), line["before"]
            if previous != before:
                found.append(f"line {number} of {self.path} does not follow the line before it")
            if _hash(line) != own:
                found.append(f"line {number} of {self.path} was changed after it was written")
            before = own
        return found

    def epsilon(self, delta: float, more: Iterable[float] = ()) -> float:
        """What all updates so far, and more of these noises, give away: ε at this δ.

        It is infinite as soon as weights or extras left without noise. The unit is a site's update;
        for a patient, whose data could change it from any into any other, noises count half. Scores
        are not in it: their lines are marked `bare`.
        """
        from polyclinic.engine.flower.privacy import epsilon_of  # brings scipy

        lines = [line for line in self.lines() if line["bytes"] and not line.get("again")]
        return epsilon_of([*(float(line.get("noise") or 0) for line in lines), *more], delta)

    def _read(self, texts: list[str]) -> list[dict[str, Any]]:
        try:
            return [_parsed(text) for text in texts]
        except ValueError:
            self.refuse_broken()
            raise


def _parsed(text: str) -> dict[str, Any]:
    """A line of a ledger; ValueError where it is none."""
    line = json.loads(text)
    if not isinstance(line, dict) or not {"hash", "before", "bytes"} <= set(line):
        raise ValueError("no line of a ledger")
    return line


def _hash(line: Mapping[str, Any]) -> str:
    text = json.dumps(line, ensure_ascii=False, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def summary(ledger: Ledger) -> list[str]:
    """What left the site, a line for each run, and the hash to note elsewhere."""
    lines = ledger.lines()
    texts = []
    refusals = sum("refused" in line for line in lines)
    for run in dict.fromkeys(str(line["run"]) for line in lines if "run" in line):
        of_run = [line for line in lines if line.get("run") == run]
        megabytes = sum(line.get("sent", line["bytes"]) for line in of_run) / 1e6
        spent = [line["epsilon"] for line in of_run if "epsilon" in line]
        bare = sum("bare" in line for line in of_run)
        privacy = f", ε of the updates so far {spent[-1]:.2f}" if spent else ""
        if spent and bare:
            privacy += f", infinite with the {bare} messages of scores, which have no noise"
        texts.append(f"{run}: {len(of_run)} messages, {megabytes:.1f} MB{privacy}")
    if refusals:
        texts.append(f"{refusals} requests refused")
    return [*texts, f"{len(lines)} lines, none changed; the last has the hash {ledger.head()}"]
