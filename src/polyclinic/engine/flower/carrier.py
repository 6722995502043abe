"""How a payload travels: as bytes, in a message of Flower's and on the socket to a site's worker.

Nothing here looks into a payload or imports torch: the app that Flower starts for every message
only passes payloads on, and has to start at once.
"""

import struct
from typing import BinaryIO

from flwr.app import Array, ArrayRecord, RecordDict

NAME = "payload"
STORED_AS = "polyclinic.payload"  # no format that Flower would open
_LENGTH = struct.Struct("<Q")


class PayloadError(ValueError):
    """Why a payload is not used."""

    refuses = "message"


def to_records(payload: bytes) -> RecordDict:
    """A payload as the content of Flower's message.

    Flower fetches every array with requests of its own, so it is one array. Flower itself cuts it
    into pieces of 5 MB.
    """
    array = Array("uint8", (len(payload),), STORED_AS, payload)
    return RecordDict({NAME: ArrayRecord({NAME: array})})


def from_records(content: RecordDict) -> bytes:
    """The payload in a message of Flower's; PayloadError where there is none."""
    arrays = content.get(NAME)
    if not isinstance(arrays, ArrayRecord) or set(arrays) != {NAME}:
        raise PayloadError("it is not a payload of Polyclinic")
    array = arrays[NAME]
    if array.stype != STORED_AS:
        raise PayloadError(f"it is stored as {array.stype[:50]!r}, not as a payload of Polyclinic")
    return array.data


def send(stream: BinaryIO, payload: bytes) -> None:
    """Write a payload to a socket: its length, then its bytes."""
    stream.write(_LENGTH.pack(len(payload)))
    stream.write(payload)
    stream.flush()


def receive(stream: BinaryIO) -> bytes:
    """The next payload from a socket; EOFError where the other side hung up."""
    (length,) = _LENGTH.unpack(_exactly(stream, _LENGTH.size))
    return _exactly(stream, length)


def _exactly(stream: BinaryIO, count: int) -> bytes:
    data = stream.read(count)
    if len(data) != count:
        raise EOFError("the other side hung up in the middle of a payload")
    return data
