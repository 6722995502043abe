"""Named tensors on disk: safetensors files, written whole or not at all, with a checksum inside."""

import errno
import hashlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from polyclinic.runs import RunError, clear_errors, replacing

CHECKSUM = "sha256"  # what the checksum is called among a file's texts


class DamagedFile(RunError):
    """A file of tensors that is not as it was written."""


def save_tensors(path: Path, tensors: Mapping[str, Tensor], about: Mapping[str, str]) -> None:
    """Write the tensors and the texts that describe them."""
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    texts = {**about, CHECKSUM: _checksum(plain, about)}
    with replacing(path) as unfinished:
        try:
            save_file(plain, unfinished, metadata=texts)
        except SafetensorError as error:  # its own word for an error of the system's
            found = re.search(r"os error (\d+)", str(error))
            number = int(found[1]) if found else errno.EIO
            raise OSError(number, os.strerror(number)) from error


def load_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors and the texts of a file; DamagedFile where they are not those written."""
    try:
        tensors, texts = open_tensors(path)
        found = texts.pop(CHECKSUM, "none")
        whole = found == _checksum(tensors, texts)
    except (SafetensorError, ValueError, KeyError, RuntimeError) as error:
        raise DamagedFile(f"{path} is damaged: {error}") from error
    if not whole:
        raise DamagedFile(f"{path} is damaged: its checksum is not that of its content")
    return tensors, texts


def open_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The same unchecked; tensors are pages of the file that nobody has read yet."""
    with clear_errors(path, "read"), safe_open(path, framework="pt") as file:
        names = file.keys()
        return {name: file.get_tensor(name) for name in names}, file.metadata() or {}


def _checksum(tensors: Mapping[str, Tensor], texts: Mapping[str, str]) -> str:
    shapes = {name: (str(each.dtype), list(each.shape)) for name, each in tensors.items()}
    checksum = hashlib.sha256(json.dumps([texts, shapes], sort_keys=True).encode())
    for name in sorted(tensors):
        checksum.update(tensors[name].reshape(-1).view(torch.uint8).numpy().data)
    return checksum.hexdigest()
