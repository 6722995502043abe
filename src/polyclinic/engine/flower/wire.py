"""The one form of a message on the wire: the bytes of a safetensors file with a JSON header.

What an encoding loses, relative to a value v of the weights (extras likewise, except with
`difference`, which leaves them exact):

- float32: nothing.
- float16: half the bytes; up to |v| / 2048, and 3e-8 for tiny values; above 65504 it is refused.
- bfloat16: half the bytes; up to |v| / 256.
- difference: replies at half the bytes; up to |d| / 2048 of the change d since the message was
  received, and a 3e-8th of the largest change of the tensor. Messages from the server stay exact.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from polyclinic.engine.flower.carrier import PayloadError
from polyclinic.federation.message import Message
from polyclinic.federation.weights import Weights

HEADER = "header"  # the name of the JSON text among the texts of a safetensors file
HALVES = {"float16": torch.float16, "bfloat16": torch.bfloat16}
WHOLE = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)
TYPES = (torch.float64, torch.float32, *HALVES.values(), *WHOLE)
LONGEST_NAME = 300


@dataclass(frozen=True)
class Payload:
    """What is sent: a header of plain JSON, and the tensors of a message as they travel."""

    header: dict[str, Any]
    tensors: Mapping[str, Tensor] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """The bytes of its tensors."""
        return sum(tensor.nbytes for tensor in self.tensors.values())

    def bytes_by_part(self, message: Message) -> dict[str, int]:
        """The bytes of a message as sent, by the part of the network or the sort of extra."""
        parts = {}
        for part, names in message.names_by_part().items():
            group = "extras" if part.startswith("extra ") else "weights"
            parts[part] = sum(self.tensors[f"{group}/{name}"].nbytes for name in names)
        return parts

    def contents(self) -> dict[str, str]:
        """The type and the shape of each of its tensors."""
        return {
            name: f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"
            for name, tensor in self.tensors.items()
        }

    def digest(self) -> str:
        """A hash of its tensors and their names, in whichever order they were read."""
        digest = hashlib.sha256()
        for name, tensor in sorted(self.tensors.items()):
            digest.update(name.encode())
            digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
        return digest.hexdigest()

    def to_bytes(self) -> bytes:
        """The payload as it travels."""
        return bytes(save(dict(self.tensors), {HEADER: json.dumps(self.header)}))

    @classmethod
    def from_bytes(cls, data: bytes, most: float = float("inf")) -> "Payload":
        """The payload in these bytes; PayloadError where it is none, or above `most` bytes."""
        header, size = _header(data)
        if size > most:
            raise PayloadError(
                f"a message of {size / 1e6:.0f} MB is larger than the "
                f"{round(most / 1e6, 3):g} MB allowed"
            )
        try:
            tensors = load(data)
        except (SafetensorError, KeyError, ValueError, RuntimeError, OverflowError) as error:
            raise PayloadError(f"its tensors cannot be read: {error}") from error
        for name, tensor in tensors.items():
            if tensor.dtype not in TYPES:
                raise PayloadError(f"{name} has values of type {tensor.dtype}, which do not travel")
        return cls(header, tensors)


def header_of(data: bytes) -> dict[str, Any]:
    """The header of a payload alone; PayloadError where the bytes are no payload."""
    return _header(data)[0]


def pack(
    header: Mapping[str, Any], message: Message, encoding: str, received: Weights | None = None
) -> Payload:
    """A message behind a header; a reply names the weights it `received`, for `difference`."""
    scales = {}
    tensors = {}
    for name, tensor in message.weights.items():
        if encoding == "difference" and received is not None and name in received:
            change = tensor.cpu() - received[name].cpu()
            scales[name] = float(change.abs().max()) if change.numel() else 0.0
            tensor = (change / (scales[name] or 1.0)).half()
        tensors[f"weights/{name}"] = _encoded(name, tensor, encoding)
    for name, tensor in message.extras.items():
        tensors[f"extras/{name}"] = _encoded(name, tensor, encoding)
    contents = {
        "weights": list(message.weights),
        "extras": list(message.extras),
        "numbers": dict(message.numbers),
        "scales": scales,
    }
    return Payload({**header, "message": contents}, tensors)


def unpack(payload: Payload, received: Weights | None = None) -> Message:
    """The message in a payload, its weights in full precision; PayloadError where it is none."""
    contents = payload.header.get("message")
    if not isinstance(contents, dict):
        raise PayloadError("there is no message in it")
    scales = _numbers(contents, "scales")
    weights = {}
    for name in _names(contents, "weights"):
        tensor = _named(payload, f"weights/{name}")
        if not tensor.is_floating_point():
            raise PayloadError(f"the weights {name} are of type {tensor.dtype}")
        weights[name] = tensor.float()
        if name in scales:
            weights[name] = _added(name, weights[name] * scales[name], received)
    extras = {}
    for name in _names(contents, "extras"):
        tensor = _named(payload, f"extras/{name}")
        extras[name] = tensor.float() if tensor.dtype in HALVES.values() else tensor
    if len(weights) + len(extras) != len(payload.tensors):
        raise PayloadError("it has tensors that the message does not name")
    return Message(Weights.pack(weights), extras, _numbers(contents, "numbers"))


def _header(data: bytes) -> tuple[dict[str, Any], int]:
    """The header, and the bytes of the tensors behind it."""
    start = 8 + int.from_bytes(data[:8], "little")
    if not 8 < start <= len(data):
        raise PayloadError("it is not a payload of Polyclinic")
    try:
        header = json.loads(json.loads(data[8:start])["__metadata__"][HEADER])
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise PayloadError("its header cannot be read") from error
    if not isinstance(header, dict):
        raise PayloadError("its header is not a table")
    return header, len(data) - start


def _encoded(name: str, tensor: Tensor, encoding: str) -> Tensor:
    plain = tensor.detach().cpu().contiguous()
    if encoding in HALVES and plain.dtype == torch.float32:
        smaller = plain.to(HALVES[encoding])
        if plain.isfinite().all() and not smaller.isfinite().all():
            raise PayloadError(
                f"{name} has values that engine.encoding = {encoding!r} cannot hold; use bfloat16"
            )
        plain = smaller
    if plain.dtype not in TYPES:
        raise PayloadError(f"{name} has values of type {plain.dtype}, which do not travel")
    return plain


def _added(name: str, change: Tensor, received: Weights | None) -> Tensor:
    if received is None or name not in received:
        raise PayloadError(f"{name} is a difference to nothing that was sent")
    if change.shape != received[name].shape:
        raise PayloadError(f"{name} is a difference of another shape than what was sent")
    return received[name] + change


def _named(payload: Payload, name: str) -> Tensor:
    if name not in payload.tensors:
        raise PayloadError(f"it lacks {name}")
    return payload.tensors[name]


def _names(contents: Mapping[str, Any], group: str) -> list[str]:
    names = contents.get(group)
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise PayloadError(f"its {group} are not listed by name")
    if not all(name.isprintable() and len(name) <= LONGEST_NAME for name in names):
        raise PayloadError(f"its {group} have names that cannot be printed")
    if len(set(names)) != len(names):
        raise PayloadError(f"it lists one of its {group} twice")
    return names


def _numbers(contents: Mapping[str, Any], group: str) -> dict[str, float]:
    table = contents.get(group)
    values = table.values() if isinstance(table, dict) else [None]
    if not all(isinstance(each, int | float) for each in values):
        raise PayloadError(f"its {group} are not numbers")
    _names({group: list(table or ())}, group)
    try:
        return {name: float(value) for name, value in (table or {}).items()}
    except OverflowError as error:
        raise PayloadError(f"its {group} are too large") from error
