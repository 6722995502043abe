"""The coordinator as a witness of the sites' ledgers: it notes and countersigns their heads.

Every reply tells how many lines the site's ledger had and the hash of the last; the next request
brings the countersignature. So a ledger that was cut or written anew is noticed at the other end.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from polyclinic.engine.flower.carrier import PayloadError
from polyclinic.engine.flower.ledger import START, Ledger
from polyclinic.engine.flower.signing import Signed, signed_by
from polyclinic.engine.flower.wire import header_of
from polyclinic.runs import write_atomic
from polyclinic.runs.files import append_lines, complete_lines

MOST = 10**9  # lines
Hash = Annotated[str, Field(pattern=r"\A[0-9a-f]{64}\z")]
COUNTERSIGNED, LEDGER = "countersigned", "ledger"  # in headers of requests and of replies


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Head(_Record):
    """How many lines a ledger has, and the hash of the last of them."""

    lines: Annotated[int, Field(ge=0, le=MOST)]
    head: Hash


class ToldHead(Head):
    """What a reply tells of the ledger: its head, and the hash of the line countersigned last."""

    known: Hash = START


class Noted(Head):
    """What the coordinator keeps of a site's ledger; `content` is the hash of the reply itself."""

    at: str
    content: Hash
    signed: Signed | None = None

    def text(self, site: str) -> bytes:
        """What is signed."""
        return f"polyclinic ledger {site} {self.lines} {self.head}".encode()


@dataclass
class Witness:
    """Keeps in a file the last head of each site's ledger, what was amiss, and the site's key."""

    file: Path
    tell: Callable[[str], None]
    sign: Callable[[bytes], Signed] | None = None
    noted: dict[str, Noted] = field(default_factory=dict)
    amiss: list[str] = field(default_factory=list)
    keys: dict[str, str] = field(default_factory=dict)  # for what others disclose to a site

    def __post_init__(self) -> None:
        if self.file.exists():
            kept = json.loads(self.file.read_text())
            self.noted = {site: Noted(**each) for site, each in kept["sites"].items()}
            self.amiss, self.keys = list(kept["amiss"]), dict(kept["keys"])

    def header(self, site: str) -> dict[str, Any]:
        """What the next request to a site says of its ledger."""
        noted = self.noted.get(site)
        return {COUNTERSIGNED: noted.model_dump(mode="json")} if noted else {}

    def note(self, site: str, reply: bytes) -> None:
        """Note what a reply tells of the site's ledger; say so where it is not the old one."""
        try:
            told = ToldHead.model_validate(header_of(reply).get(LEDGER))
        except (PayloadError, ValidationError):
            return
        before = self.noted.get(site)
        if before is not None and (told.lines < before.lines or told.known != before.head):
            self.amiss.append(
                f"{site}: line {before.lines} of its ledger, countersigned on {before.at}, is gone "
                "or another one: the ledger was cut or written anew"
            )
            self.tell(self.amiss[-1])
        noted = Noted(
            lines=told.lines,
            head=told.head,
            at=datetime.now().astimezone().isoformat(timespec="seconds"),
            content=hashlib.sha256(reply).hexdigest(),
        )
        signed = self.sign(noted.text(site)) if self.sign else None
        self.noted[site] = noted.model_copy(update={"signed": signed})
        self._write()

    def recipients(self, sender: str) -> tuple[str, ...]:
        """The keys of all sites but the one that discloses."""
        return tuple(key for site, key in self.keys.items() if site != sender)

    def know(self, site: str, key: str) -> None:
        """Note the key of a site, and say so where it had another one."""
        if self.keys.get(site, key) != key:
            self.tell(f"{site} has a new key for what others disclose to it: {key}")
        self.keys[site] = key
        self._write()

    def _write(self) -> None:
        sites = {name: each.model_dump(mode="json") for name, each in self.noted.items()}
        content = {"sites": sites, "amiss": self.amiss, "keys": self.keys}
        write_atomic(self.file, json.dumps(content, indent=1) + "\n")


@dataclass(frozen=True)
class Countersignatures:
    """A site's copy of what the coordinator countersigned; signatures count only under `ca`."""

    state: Path
    site: str
    ca: Path | None

    @property
    def file(self) -> Path:
        """Where they are kept, a line for each."""
        return self.state / "countersigned.jsonl"

    def receive(self, header: Mapping[str, Any], ledger: Ledger) -> dict[str, Any]:
        """Keep what a request brings; gives what the reply tells of the ledger."""
        known = START
        hashes = [str(line["hash"]) for line in ledger.lines()]
        if COUNTERSIGNED in header:
            noted = self._checked(header[COUNTERSIGNED])
            known = hashes[noted.lines - 1] if 0 < noted.lines <= len(hashes) else START
            text = noted.model_dump_json()
            if complete_lines(self.file)[-1:] != [text]:
                append_lines(self.file, text + "\n")
        return {"lines": len(hashes), "head": ledger.head(), "known": known}

    def _checked(self, content: Any) -> Noted:
        try:
            noted = Noted.model_validate(content)
        except ValidationError as error:
            raise PayloadError("it has no countersignature that can be read") from error
        if self.ca is not None and not signed_by(self.ca, noted.text(self.site), noted.signed):
            raise PayloadError("the countersignature of the ledger is not the coordinator's")
        return noted

    def mistakes(self, ledger: Ledger) -> list[str]:
        """What shows that the ledger is not the one that was countersigned."""
        kept = [Noted.model_validate_json(text) for text in complete_lines(self.file)]
        return [text for noted in kept for text in differences(noted, ledger, last=False)]


def differences(noted: Noted, ledger: Ledger, *, last: bool = True) -> list[str]:
    """Where a ledger is not the one that the coordinator noted.

    The `last` one noted also knows the reply after that line, by the hash of its bytes.
    """
    lines = ledger.lines()
    where = f"line {noted.lines} of {ledger.path}, countersigned on {noted.at}"
    if noted.lines > len(lines):
        return [f"{where}, was cut off: there are {len(lines)} lines"]
    if noted.lines and lines[noted.lines - 1]["hash"] != noted.head:
        return [f"{where}, is another one now: the ledger was written anew"]
    if last and noted.content not in {line.get("content") for line in lines[noted.lines :]}:
        return [f"the reply after {where}, is not in the ledger: lines were cut off"]
    return []


def noted_in(file: Path, site: str) -> Noted:
    """What a coordinator's file has noted of a site's ledger; ValueError where it has nothing."""
    sites = json.loads(file.read_text())["sites"]
    if site not in sites:
        raise ValueError(f"{file} has nothing of {site}; it knows {', '.join(sites) or 'nobody'}")
    return Noted(**sites[site])
