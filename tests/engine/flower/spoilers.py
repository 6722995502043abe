"""What a hospital with a broken or tampered program may do to its answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from polyclinic.engine.flower.payload import Blob, Payload

Spoiler = Callable[[Payload], Payload]


def one_array(payload: Payload, change: Callable[[Blob], Blob]) -> Payload:
    name = next(iter(payload.arrays))
    return replace(payload, arrays={**payload.arrays, name: change(payload.arrays[name])})


def nan(payload: Payload) -> Payload:
    """A single value among thousands."""
    return one_array(payload, lambda blob: replace(blob, data=b"\x00\x00\xc0\x7f" + blob.data[4:]))


def transposed(payload: Payload) -> Payload:
    return one_array(payload, lambda blob: replace(blob, shape=blob.shape[::-1]))


def as_integers(payload: Payload) -> Payload:
    return one_array(payload, lambda blob: replace(blob, dtype="int32"))


def emptied(payload: Payload) -> Payload:
    return one_array(payload, lambda blob: replace(blob, data=b""))


def renamed(payload: Payload) -> Payload:
    first, *others = payload.arrays
    names = ["nonsense", *payload.about["message"]["weights"][1:]]
    arrays = {"weights/nonsense": payload.arrays[first], **{n: payload.arrays[n] for n in others}}
    return replace(lettered(payload, weights=names), arrays=arrays)


def shortened(payload: Payload) -> Payload:
    names = payload.about["message"]["weights"][1:]
    arrays = dict(list(payload.arrays.items())[1:])
    return replace(lettered(payload, weights=names), arrays=arrays)


def without_numbers(payload: Payload) -> Payload:
    return lettered(payload, numbers={})


def under_another_name(payload: Payload) -> Payload:
    return replace(payload, about={**payload.about, "site": "elsewhere"})


def lettered(payload: Payload, **changes: object) -> Payload:
    """Another table of contents."""
    message = {**payload.about["message"], **changes}
    return replace(payload, about={**payload.about, "message": message})


def answered(payload: Payload, **changes: object) -> Payload:
    """Another answer beside the message."""
    answer = {**payload.about["answer"], **changes}
    return replace(payload, about={**payload.about, "answer": answer})


SPOILERS: Mapping[str, tuple[Spoiler, str]] = {
    "nan": (nan, "values that are not numbers"),
    "names": (renamed, "weights that are not shared: nonsense"),
    "fewer": (shortened, "differ from the other sites' in name or shape"),
    "shape": (transposed, "another shape"),
    "type": (as_integers, "are of type int32"),
    "bytes": (emptied, "0 bytes"),
    "numbers": (without_numbers, "how many images and steps"),
    "site": (under_another_name, "under another name: 'elsewhere'"),
    "round": (lambda payload: answered(payload, number=7), "answered for round 7"),
}
"""Each with words of what the coordinator then says of the site."""
