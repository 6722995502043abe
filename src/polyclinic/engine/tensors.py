"""Named tensors on disk: safetensors files, written whole or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from polyclinic.runs import replacing


def save_tensors(path: Path, tensors: Mapping[str, Tensor], about: Mapping[str, str]) -> None:
    """Write the tensors and the texts that describe them."""
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    with replacing(path) as unfinished:
        save_file(plain, unfinished, metadata=dict(about))


def load_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors and the texts of a file."""
    with safe_open(path, framework="pt") as file:
        names = file.keys()
        return {name: file.get_tensor(name) for name in names}, file.metadata() or {}


def nested(**groups: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Several groups of tensors as one, each name with its group in front."""
    return {f"{g}/{name}": tensor for g, group in groups.items() for name, tensor in group.items()}


def group(tensors: Mapping[str, Tensor], name: str) -> dict[str, Tensor]:
    """The tensors of one group, under their own names again."""
    prefix = f"{name}/"
    return {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}
