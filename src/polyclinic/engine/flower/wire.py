"""Messages as payloads and back: named arrays, exact or in a smaller encoding.

What an encoding loses, relative to a value v of the weights (extras likewise, except with
`difference`, which leaves them exact):

- float32: nothing.
- float16: half the bytes; up to |v| / 2048, and 3e-8 for tiny values; above 65504 it is refused.
- bfloat16: half the bytes; up to |v| / 256.
- difference: replies at half the bytes; up to |d| / 2048 of the change d since the message was
  received, and a 3e-8th of the largest change of the tensor. Messages from the server stay exact.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from polyclinic.engine.flower.payload import SIZES, Blob, Payload, PayloadError
from polyclinic.federation.message import Message
from polyclinic.federation.weights import Weights

TYPES = {name: getattr(torch, name) for name in SIZES}
NAMES = {dtype: name for name, dtype in TYPES.items()}


def pack(message: Message, encoding: str, received: Weights | None = None) -> Payload:
    """The message as a payload; a reply names the weights it `received`, for `difference`."""
    scales = {}
    arrays = {}
    for name, tensor in message.weights.items():
        if encoding == "difference" and received is not None and name in received:
            change = tensor.cpu() - received[name].cpu()
            scales[name] = float(change.abs().max()) if change.numel() else 0.0
            tensor = (change / (scales[name] or 1.0)).half()
        arrays[f"weights/{name}"] = _blob(name, tensor, encoding)
    for name, tensor in message.extras.items():
        arrays[f"extras/{name}"] = _blob(name, tensor, encoding)
    about = {
        "weights": list(message.weights),
        "extras": list(message.extras),
        "numbers": dict(message.numbers),
        "scales": scales,
    }
    return Payload({"message": about}, arrays)


def unpack(payload: Payload, received: Weights | None = None) -> Message:
    """The message in a payload, its weights in full precision; PayloadError where it is none."""
    about = payload.about.get("message")
    if not isinstance(about, dict):
        raise PayloadError("there is no message in it")
    scales = _numbers(about, "scales")
    weights = {}
    for name in _names(about, "weights"):
        tensor = _tensor(payload.arrays, f"weights/{name}")
        if not tensor.is_floating_point():
            raise PayloadError(f"the weights {name} are of type {NAMES[tensor.dtype]}")
        weights[name] = tensor.float()
        if name in scales:
            if received is None or name not in received:
                raise PayloadError(f"{name} is a difference to nothing that was sent")
            if tensor.shape != received[name].shape:
                raise PayloadError(f"{name} is a difference of another shape than what was sent")
            weights[name] = received[name] + weights[name] * scales[name]
    lossy = (torch.float16, torch.bfloat16)
    extras = {}
    for name in _names(about, "extras"):
        tensor = _tensor(payload.arrays, f"extras/{name}")
        extras[name] = tensor.float() if tensor.dtype in lossy else tensor
    if len(weights) + len(extras) != len(payload.arrays):
        raise PayloadError("it has arrays that the message does not name")
    return Message(Weights.pack(weights), extras, _numbers(about, "numbers"))


def bytes_by_part(payload: Payload) -> dict[str, int]:
    """The bytes of a message as sent, by the part of the network or the sort of extra."""
    parts: dict[str, int] = {}
    for name, blob in payload.arrays.items():
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
            raise PayloadError(
                f"{name} has values that engine.encoding = {encoding!r} cannot hold; use bfloat16"
            )
        plain = smaller
    if plain.dtype not in NAMES:
        raise PayloadError(f"{name} has values of type {plain.dtype}, which do not travel")
    data = plain.contiguous().view(-1).view(torch.uint8).numpy().tobytes()
    return Blob(NAMES[plain.dtype], tuple(plain.shape), data)


def _tensor(arrays: Mapping[str, Blob], name: str) -> Tensor:
    if name not in arrays:
        raise PayloadError(f"it lacks {name}")
    blob = arrays[name]
    blob.check(name)
    if not blob.data:
        return torch.empty(blob.shape, dtype=TYPES[blob.dtype])
    # A copy of the bytes: tensors must not share memory that nobody may write to.
    return torch.frombuffer(bytearray(blob.data), dtype=TYPES[blob.dtype]).view(blob.shape)


def _names(about: Mapping[str, Any], group: str) -> list[str]:
    names = about.get(group)
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise PayloadError(f"its {group} are not listed by name")
    if len(set(names)) != len(names):
        raise PayloadError(f"it lists one of its {group} twice")
    return names


def _numbers(about: Mapping[str, Any], group: str) -> dict[str, float]:
    table = about.get(group)
    values = table.values() if isinstance(table, dict) else [None]
    if not all(isinstance(each, int | float) for each in values):
        raise PayloadError(f"its {group} are not numbers")
    try:
        return {name: float(value) for name, value in (table or {}).items()}
    except OverflowError as error:
        raise PayloadError(f"its {group} are too large") from error
