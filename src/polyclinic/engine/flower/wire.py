"""Letters as parcels and back: named arrays, exact or in a smaller encoding.

What an encoding loses, relative to a value v of the weights (extras likewise, except with
`difference`, which leaves them exact):

- float32: nothing.
- float16: half the bytes; up to |v| / 2048, and 3e-8 for tiny values; above 65504 it is refused.
- bfloat16: half the bytes; up to |v| / 256.
- difference: replies at half the bytes; up to |d| / 2048 of the change d since the letter was
  received, and a 3e-8th of the largest change of the tensor. Letters from the server stay exact.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from polyclinic.engine.flower.parcel import SIZES, Blob, Parcel, ParcelError
from polyclinic.federation.letter import Letter
from polyclinic.federation.weights import Weights

TYPES = {name: getattr(torch, name) for name in SIZES}
NAMES = {dtype: name for name, dtype in TYPES.items()}


def pack(letter: Letter, encoding: str, received: Weights | None = None) -> Parcel:
    """The letter as a parcel; a reply names the weights it `received`, for `difference`."""
    scales = {}
    arrays = {}
    for name, tensor in letter.weights.items():
        if encoding == "difference" and received is not None and name in received:
            change = tensor.cpu() - received[name].cpu()
            scales[name] = float(change.abs().max()) if change.numel() else 0.0
            tensor = (change / (scales[name] or 1.0)).half()
        arrays[f"weights/{name}"] = _blob(name, tensor, encoding)
    for name, tensor in letter.extras.items():
        arrays[f"extras/{name}"] = _blob(name, tensor, encoding)
    about = {
        "weights": list(letter.weights),
        "extras": list(letter.extras),
        "numbers": dict(letter.numbers),
        "scales": scales,
    }
    return Parcel({"letter": about}, arrays)


def unpack(parcel: Parcel, received: Weights | None = None) -> Letter:
    """The letter in a parcel, its weights in full precision; ParcelError where it is none."""
    about = parcel.about.get("letter")
    if not isinstance(about, dict):
        raise ParcelError("there is no letter in it")
    scales = _numbers(about, "scales")
    weights = {}
    for name in _names(about, "weights"):
        tensor = _tensor(parcel.arrays, f"weights/{name}")
        if not tensor.is_floating_point():
            raise ParcelError(f"the weights {name} are of type {NAMES[tensor.dtype]}")
        weights[name] = tensor.float()
        if name in scales:
            if received is None or name not in received:
                raise ParcelError(f"{name} is a difference to nothing that was sent")
            if tensor.shape != received[name].shape:
                raise ParcelError(f"{name} is a difference of another shape than what was sent")
            weights[name] = received[name] + weights[name] * scales[name]
    lossy = (torch.float16, torch.bfloat16)
    extras = {}
    for name in _names(about, "extras"):
        tensor = _tensor(parcel.arrays, f"extras/{name}")
        extras[name] = tensor.float() if tensor.dtype in lossy else tensor
    if len(weights) + len(extras) != len(parcel.arrays):
        raise ParcelError("it has arrays that the letter does not name")
    return Letter(Weights.pack(weights), extras, _numbers(about, "numbers"))


def bytes_by_part(parcel: Parcel) -> dict[str, int]:
    """The bytes of a letter as sent, by the part of the network or the sort of extra."""
    parts: dict[str, int] = {}
    for name, blob in parcel.arrays.items():
        group, _, rest = name.partition("/")
        extra = f"extra {rest.partition('/')[0]}"
        part = rest.partition(".")[0] if group == "weights" else extra
        parts[part] = parts.get(part, 0) + len(blob.data)
    return parts


def _blob(name: str, tensor: Tensor, encoding: str) -> Blob:
    plain = tensor.detach().cpu()
    if encoding in ("float16", "bfloat16") and plain.dtype == torch.float32:
        smaller = plain.to(TYPES[encoding])
        if plain.isfinite().all() and not smaller.isfinite().all():
            raise ParcelError(
                f"{name} has values that engine.encoding = {encoding!r} cannot hold; use bfloat16"
            )
        plain = smaller
    if plain.dtype not in NAMES:
        raise ParcelError(f"{name} has values of type {plain.dtype}, which do not travel")
    data = plain.contiguous().view(-1).view(torch.uint8).numpy().tobytes()
    return Blob(NAMES[plain.dtype], tuple(plain.shape), data)


def _tensor(arrays: Mapping[str, Blob], name: str) -> Tensor:
    if name not in arrays:
        raise ParcelError(f"it lacks {name}")
    blob = arrays[name]
    blob.check(name)
    if not blob.data:
        return torch.empty(blob.shape, dtype=TYPES[blob.dtype])
    # A copy of the bytes: tensors must not share memory that nobody may write to.
    return torch.frombuffer(bytearray(blob.data), dtype=TYPES[blob.dtype]).view(blob.shape)


def _names(about: Mapping[str, Any], group: str) -> list[str]:
    names = about.get(group)
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ParcelError(f"its {group} are not listed by name")
    if len(set(names)) != len(names):
        raise ParcelError(f"it lists one of its {group} twice")
    return names


def _numbers(about: Mapping[str, Any], group: str) -> dict[str, float]:
    table = about.get(group)
    values = table.values() if isinstance(table, dict) else [None]
    if not all(isinstance(each, int | float) for each in values):
        raise ParcelError(f"its {group} are not numbers")
    try:
        return {name: float(value) for name, value in (table or {}).items()}
    except OverflowError as error:
        raise ParcelError(f"its {group} are too large") from error
