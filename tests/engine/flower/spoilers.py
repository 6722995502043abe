"""What a hospital with a broken or tampered program may do to its answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from polyclinic.engine.flower.parcel import Blob, Parcel

Spoiler = Callable[[Parcel], Parcel]


def one_array(parcel: Parcel, change: Callable[[Blob], Blob]) -> Parcel:
    name = next(iter(parcel.arrays))
    return replace(parcel, arrays={**parcel.arrays, name: change(parcel.arrays[name])})


def nan(parcel: Parcel) -> Parcel:
    """A single value among thousands."""
    return one_array(parcel, lambda blob: replace(blob, data=b"\x00\x00\xc0\x7f" + blob.data[4:]))


def transposed(parcel: Parcel) -> Parcel:
    return one_array(parcel, lambda blob: replace(blob, shape=blob.shape[::-1]))


def as_integers(parcel: Parcel) -> Parcel:
    return one_array(parcel, lambda blob: replace(blob, dtype="int32"))


def emptied(parcel: Parcel) -> Parcel:
    return one_array(parcel, lambda blob: replace(blob, data=b""))


def renamed(parcel: Parcel) -> Parcel:
    first, *others = parcel.arrays
    names = ["nonsense", *parcel.about["letter"]["weights"][1:]]
    arrays = {"weights/nonsense": parcel.arrays[first], **{n: parcel.arrays[n] for n in others}}
    return replace(lettered(parcel, weights=names), arrays=arrays)


def shortened(parcel: Parcel) -> Parcel:
    names = parcel.about["letter"]["weights"][1:]
    arrays = dict(list(parcel.arrays.items())[1:])
    return replace(lettered(parcel, weights=names), arrays=arrays)


def without_numbers(parcel: Parcel) -> Parcel:
    return lettered(parcel, numbers={})


def under_another_name(parcel: Parcel) -> Parcel:
    return replace(parcel, about={**parcel.about, "site": "elsewhere"})


def lettered(parcel: Parcel, **changes: object) -> Parcel:
    """Another table of contents."""
    letter = {**parcel.about["letter"], **changes}
    return replace(parcel, about={**parcel.about, "letter": letter})


def answered(parcel: Parcel, **changes: object) -> Parcel:
    """Another answer beside the letter."""
    answer = {**parcel.about["answer"], **changes}
    return replace(parcel, about={**parcel.about, "answer": answer})


SPOILERS: Mapping[str, tuple[Spoiler, str]] = {
    "nan": (nan, "values that are not numbers"),
    "names": (renamed, "weights that are not shared: nonsense"),
    "fewer": (shortened, "differ from the other sites' in name or shape"),
    "shape": (transposed, "another shape"),
    "type": (as_integers, "are of type int32"),
    "bytes": (emptied, "0 bytes"),
    "numbers": (without_numbers, "how many images and steps"),
    "site": (under_another_name, "under another name: 'elsewhere'"),
    "round": (lambda parcel: answered(parcel, number=7), "answered for round 7"),
}
"""Each with words of what the coordinator then says of the site."""
