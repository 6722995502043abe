"""A payload: what one message carries, as plain JSON and named bytes, without torch or Flower.

The app that Flower starts for every message hands payloads on to the site's worker, so this module
must be quick to import.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO

SIZES: Mapping[str, int] = {
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "int64": 8,
    "int32": 4,
    "int16": 2,
    "int8": 1,
    "uint8": 1,
    "bool": 1,
}
"""The types of values that travel, and their bytes."""

LONGEST = 2**31  # values along one side of an array
_HEAD = struct.Struct("<Q")  # the bytes of the text


class PayloadError(ValueError):
    """A payload that nobody should open."""


@dataclass(frozen=True)
class Blob:
    """An array as little-endian bytes in row-major order."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes

    def check(self, name: str) -> None:
        """Refuse what is no array: an unknown type, or another number of bytes than it needs."""
        if self.dtype not in SIZES:
            raise PayloadError(f"{name} has values of type {self.dtype!r}, which do not travel")
        needed = math.prod(self.shape) * SIZES[self.dtype]
        sane = all(0 <= side < LONGEST for side in self.shape)
        if not sane or needed != len(self.data):
            raise PayloadError(
                f"{name} is said to be {self.dtype} of shape {list(self.shape)}, "
                f"but has {len(self.data)} bytes"
            )


@dataclass(frozen=True)
class Payload:
    """What one message says, and the arrays in it by name."""

    about: dict[str, Any]
    arrays: Mapping[str, Blob] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """The bytes of its arrays."""
        return sum(len(blob.data) for blob in self.arrays.values())

    def write(self, stream: BinaryIO) -> None:
        """Send it down a stream of bytes."""
        listed = [[n, blob.dtype, blob.shape, len(blob.data)] for n, blob in self.arrays.items()]
        text = json.dumps({"about": self.about, "arrays": listed}).encode()
        stream.write(_HEAD.pack(len(text)))
        stream.write(text)
        for blob in self.arrays.values():
            stream.write(blob.data)
        stream.flush()

    @classmethod
    def read(cls, stream: BinaryIO) -> Payload:
        """The next payload of a stream; EOFError where the other side hung up."""
        (length,) = _HEAD.unpack(_exactly(stream, _HEAD.size))
        content = parse(_exactly(stream, length))
        arrays = {
            name: Blob(dtype, tuple(shape), _exactly(stream, size))
            for name, dtype, shape, size in content["arrays"]
        }
        return cls(content["about"], arrays)


def parse(text: str | bytes) -> dict[str, Any]:
    """The table that a JSON text is."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise PayloadError(f"a payload's text is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise PayloadError("a payload's text is not a table")
    return content


def _exactly(stream: BinaryIO, count: int) -> bytes:
    data = stream.read(count)
    if len(data) != count:
        raise EOFError("the other side hung up in the middle of a payload")
    return data
