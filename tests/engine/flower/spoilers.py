"""What a hospital with a broken or tampered program may do to its responses."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from polyclinic.engine.flower.wire import Payload

Spoiler = Callable[[Payload], Payload]
UGLY = "[/bold]\x1b 31m\x07 red\x9b"
"""Markup of the terminal, and characters that steer it."""


def one_tensor(payload: Payload, change: Callable[[Tensor], Tensor]) -> Payload:
    name = f"weights/{payload.header['message']['weights'][0]}"
    changed = change(payload.tensors[name]).contiguous()
    return replace(payload, tensors={**payload.tensors, name: changed})


def nan(payload: Payload) -> Payload:
    """A single value among thousands."""

    def change(tensor: Tensor) -> Tensor:
        changed = tensor.clone()
        changed.view(-1)[0] = float("nan")
        return changed

    return one_tensor(payload, change)


def transposed(payload: Payload) -> Payload:
    return one_tensor(payload, lambda tensor: tensor.reshape(tensor.shape[::-1]))


def as_integers(payload: Payload) -> Payload:
    return one_tensor(payload, lambda tensor: tensor.to(torch.int32))


def emptied(payload: Payload) -> Payload:
    return one_tensor(payload, lambda tensor: tensor.new_empty(0))


def renamed(payload: Payload) -> Payload:
    first, *others = payload.header["message"]["weights"]
    tensors = dict(payload.tensors)
    tensors["weights/nonsense"] = tensors.pop(f"weights/{first}")
    return replace(listing(payload, weights=["nonsense", *others]), tensors=tensors)


def shortened(payload: Payload) -> Payload:
    first, *others = payload.header["message"]["weights"]
    tensors = {n: t for n, t in payload.tensors.items() if n != f"weights/{first}"}
    return replace(listing(payload, weights=others), tensors=tensors)


def without_numbers(payload: Payload) -> Payload:
    return listing(payload, numbers={})


def under_another_name(payload: Payload) -> Payload:
    return replace(payload, header={**payload.header, "site": "elsewhere"})


def listing(payload: Payload, **changes: object) -> Payload:
    """Another table of contents."""
    message = {**payload.header["message"], **changes}
    return replace(payload, header={**payload.header, "message": message})


def responding(payload: Payload, **changes: object) -> Payload:
    """Another response beside the message."""
    response = {**payload.header["response"], **changes}
    return replace(payload, header={**payload.header, "response": response})


SPOILERS: Mapping[str, tuple[Spoiler, str]] = {
    "nan": (nan, "values that are not numbers"),
    "names": (renamed, "weights that are not shared: nonsense"),
    "fewer": (shortened, "differ from the other sites' in name or shape"),
    "shape": (transposed, "another shape"),
    "type": (as_integers, "are of type torch.int32"),
    "bytes": (emptied, "another shape"),
    "numbers": (without_numbers, "how many images and steps"),
    "site": (under_another_name, "under another name: 'elsewhere'"),
    "round": (lambda payload: responding(payload, number=7), "answered for round 7"),
    "seconds": (lambda payload: responding(payload, seconds=math.inf), "understands (seconds)"),
    "markup": (
        lambda payload: replace(payload, header={**payload.header, "refused": UGLY}),
        "it refused: [/bold] 31m red",
    ),
}
"""Each with words of what the coordinator then says of the site."""
