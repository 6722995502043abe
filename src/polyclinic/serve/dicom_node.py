"""A DICOM node: it stores what it is sent and answers with segmentations, sent to another node."""

import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory, mkdtemp
from threading import Lock
from typing import Any, NamedTuple

from pydicom import dcmread
from pydicom.uid import (
    JPEG2000,
    JPEG2000Lossless,
    JPEGBaseline8Bit,
    JPEGExtended12Bit,
    JPEGLossless,
    JPEGLosslessSV1,
    JPEGLSLossless,
    RLELossless,
    SecondaryCaptureImageStorage,
    SegmentationStorage,
)
from pynetdicom import AE, DEFAULT_TRANSFER_SYNTAXES, AllStoragePresentationContexts, evt

from polyclinic.data.errors import UnreadableError
from polyclinic.predict.folder import looked_at
from polyclinic.predict.inputs import Input, inputs_in
from polyclinic.predict.masks_out import write_masks
from polyclinic.predict.model import Model
from polyclinic.serve.guard import is_loopback

COMPRESSED = [
    *(JPEGBaseline8Bit, JPEGExtended12Bit, JPEGLossless, JPEGLosslessSV1),
    *(JPEGLSLossless, JPEG2000Lossless, JPEG2000, RLELossless),
]
VERIFICATION = "1.2.840.10008.1.1"
STORED, TOO_LARGE = 0x0000, 0xA700  # what a C-STORE is answered with
MOST_OBJECTS = 10_000  # of one association
Say = Callable[[str], None]


class Node(NamedTuple):
    """Somebody who speaks DICOM."""

    title: str
    host: str
    port: int


@dataclass(frozen=True)
class Listening:
    """Where to listen, as whom, whom to hear (all where none is named), and how much to take."""

    host: str
    port: int
    title: str = "POLYCLINIC"
    callers: tuple[str, ...] = ()
    megabytes: float = 64.0
    seconds: float = 60.0


def node_called(text: str) -> Node:
    """The node in `AE@host:port`."""
    match = re.fullmatch(r"([^@\\]{1,16})@(.+):(\d{1,5})", text)
    if match is None or not match[1].strip() or not 0 < int(match[3]) < 2**16:
        raise ValueError(f"{text} is no DICOM node: write AE@host:port, such as PACS@10.0.0.5:104")
    return Node(match[1], match[2].strip("[]"), int(match[3]))


def check_callers(host: str, callers: Sequence[str]) -> None:
    """Refuse an address that others can reach where nobody said who may call."""
    if not is_loopback(host) and not callers:
        raise ValueError(
            f"other machines can reach {host}: name the AE titles that may send (--dicom-from)"
        )


@contextmanager
def dicom_node(model: Model, where: Listening, to: Node, say: Say, *, flips: bool) -> Iterator[int]:
    """Listen, and give the port; at the end finish what was received and stop."""
    entity = AE(ae_title=where.title)
    entity.require_called_aet = True
    entity.require_calling_aet = list(where.callers)
    entity.network_timeout = entity.dimse_timeout = entity.acse_timeout = where.seconds
    syntaxes = [*DEFAULT_TRANSFER_SYNTAXES, *COMPRESSED]
    entity.add_supported_context(VERIFICATION)
    for context in AllStoragePresentationContexts:
        entity.add_supported_context(str(context.abstract_syntax), syntaxes)
    with TemporaryDirectory() as folder, ThreadPoolExecutor(1, "dicom") as worker:
        answering = _Answering(model, to, say, where, flips)
        inbox = _Inbox(Path(folder), where.megabytes, say)

        def released(event: Any) -> None:
            if received := inbox.taken(event.assoc):
                worker.submit(answering.answer, received)

        handlers: list[Any] = [
            (evt.EVT_C_STORE, inbox.store),
            (evt.EVT_RELEASED, released),
            (evt.EVT_ABORTED, inbox.forget),
        ]
        try:
            server = entity.start_server(
                (where.host, where.port), block=False, evt_handlers=handlers
            )
        except OSError as error:
            told = f"{where.host}, port {where.port} cannot be served: {error}"
            raise ValueError(told) from error
        assert server is not None
        assert server.socket is not None
        try:
            yield int(server.socket.getsockname()[1])
        finally:
            server.shutdown()


class _Inbox:
    """What each open association has sent, as files with names of our own."""

    def __init__(self, folder: Path, megabytes: float, say: Say) -> None:
        self.folder, self.most, self.say = folder, megabytes * 10**6, say
        self._open: dict[Any, Path] = {}
        self._lock = Lock()

    def store(self, event: Any) -> int:
        """Keep one object, or refuse one too many or too large."""
        content = event.encoded_dataset()
        with self._lock:
            if event.assoc not in self._open:
                self._open[event.assoc] = Path(mkdtemp(dir=self.folder))
            place = self._open[event.assoc]
        count = sum(1 for _ in place.iterdir())
        if len(content) > self.most or count >= MOST_OBJECTS:
            self.say(f"refused an object of {len(content) / 10**6:.0f} MB from {_caller(event)}")
            return TOO_LARGE
        (place / f"{count:05}.dcm").write_bytes(content)
        return STORED

    def taken(self, association: Any) -> Path | None:
        """All that an association sent, which is complete now."""
        with self._lock:
            return self._open.pop(association, None)

    def forget(self, event: Any) -> None:
        """Drop what came over a connection that broke: it may be half of a volume."""
        if left := self.taken(event.assoc):
            rmtree(left)
            self.say(f"{_caller(event)} broke off; what it had sent is dropped")


class _Answering:
    """Predicts what was received and sends it on; what goes wrong is said and stops nothing."""

    def __init__(self, model: Model, to: Node, say: Say, where: Listening, flips: bool) -> None:
        self.model, self.to, self.say, self.where, self.flips = model, to, say, where, flips

    def answer(self, received: Path) -> None:
        """Answer each volume of what one association sent, then forget it."""
        try:
            found, left = inputs_in([received])
            for _, text in left:
                self.say(f"an object without an answer: it {text}")
            for given in found:
                self._answer_one(given, received)
        except Exception as error:  # noqa: BLE001 (the next study must still be answered)
            self.say(f"a study without an answer: {type(error).__name__}: {error}")
        finally:
            rmtree(received)

    def _answer_one(self, given: Input, folder: Path) -> None:
        facts = self.model.facts
        try:
            scan = given.read(facts.task.channels, facts.axis, window=facts.stored_window)
            masks, note, _ = looked_at(self.model, scan, flips=self.flips)
            file = write_masks(folder / "out", given, scan, masks, self.model.task)
            if file.suffix != ".dcm":
                raise UnreadableError("is of a kind that DICOM has no segmentation for")
            self._send(file)
        except (UnreadableError, OSError) as error:
            self.say(f"a series of {len(given.files)} without an answer: it {error}")
            return
        told = f"; {note}" if note.reasons else ""
        self.say(f"a series of {len(given.files)} answered to {self.to.title}{told}")

    def _send(self, file: Path) -> None:
        dataset = dcmread(file)
        entity = AE(ae_title=self.where.title)
        entity.network_timeout = entity.dimse_timeout = entity.acse_timeout = self.where.seconds
        entity.connection_timeout = self.where.seconds
        for kind in (SegmentationStorage, SecondaryCaptureImageStorage):
            entity.add_requested_context(kind)
        link = entity.associate(self.to.host, self.to.port, ae_title=self.to.title)
        if not link.is_established:
            told = "refused us" if link.is_rejected else "does not answer"
            raise OSError(f"is predicted, but {self.to.title}@{self.to.host}:{self.to.port} {told}")
        try:
            status = link.send_c_store(dataset)
        finally:
            link.release()
        if not status or status.Status & 0xF000 == 0xA000 or status.Status >> 12 == 0xC:
            number = f"0x{status.Status:04X}" if status else "nothing"
            raise OSError(
                f"is predicted, but {self.to.title} answered {number} and did not keep it"
            )


def _caller(event: Any) -> str:
    return str(event.assoc.requestor.ae_title)
