"""Payloads in Flower's messages: an array for each part of the network, and a text.

Flower fetches every array with requests of its own, twice on each way, and a network has hundreds
of tensors. So those of a part travel side by side, and the text says where each of them lies.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from polyclinic.engine.flower.payload import Blob, Payload, PayloadError, parse

STORED_AS = "polyclinic.bytes"  # plain little-endian bytes, no pickle, no header to parse


def to_records(payload: Payload) -> RecordDict:
    """A payload as the content of a message."""
    contents: dict[str, list[tuple[str, str, tuple[int, ...], int]]] = {}
    for name, blob in payload.arrays.items():
        entry = (name, blob.dtype, blob.shape, len(blob.data))
        contents.setdefault(part_of(name), []).append(entry)
    arrays = OrderedDict()
    for part, entries in contents.items():
        data = b"".join(payload.arrays[name].data for name, *_ in entries)
        arrays[part] = Array("uint8", (len(data),), STORED_AS, data)
    text = json.dumps({"about": payload.about, "contents": contents})
    return RecordDict({"text": ConfigRecord({"json": text}), "arrays": ArrayRecord(arrays)})


def from_records(content: RecordDict) -> Payload:
    """The payload that a message carries; PayloadError where it carries none."""
    record, arrays = content.get("text"), content.get("arrays")
    text = record.get("json") if isinstance(record, ConfigRecord) else None
    if not isinstance(text, str) or not isinstance(arrays, ArrayRecord):
        raise PayloadError("it is not a payload of Polyclinic")
    said = parse(text)
    about, contents = said.get("about"), said.get("contents")
    if not isinstance(about, dict) or not isinstance(contents, dict) or set(contents) != {*arrays}:
        raise PayloadError("it does not say what its arrays are")
    blobs: dict[str, Blob] = {}
    for part, array in arrays.items():
        if array.stype != STORED_AS:
            raise PayloadError(f"{part} is stored as {array.stype!r}, not as plain bytes")
        blobs.update(_blobs(part, array.data, contents[part]))
    return Payload(about, blobs)


def part_of(name: str) -> str:
    """The part of the network, or the sort of extra, that an array belongs to."""
    group, _, rest = name.partition("/")
    return f"{group}/{rest.partition('.' if group == 'weights' else '/')[0]}"


def _blobs(part: str, data: bytes, entries: Any) -> Iterator[tuple[str, Blob]]:
    start = 0
    try:
        for name, dtype, shape, size in entries:
            blob = Blob(str(dtype), tuple(map(int, shape)), data[start : start + size])
            start += len(blob.data)
            yield str(name), blob
    except (TypeError, ValueError, OverflowError) as error:
        raise PayloadError(f"what {part} holds cannot be read: {error}") from error
    if start != len(data):
        raise PayloadError(f"{part} holds {len(data)} bytes, of which {start} are named")
