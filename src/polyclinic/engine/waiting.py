"""Where the replies of a round wait for each other: in files, so that memory holds none of them."""

from __future__ import annotations

import shutil
from pathlib import Path

from safetensors.torch import save_file

from polyclinic.engine.tensors import group, load_tensors, nested
from polyclinic.federation.letter import Letter
from polyclinic.federation.weights import Weights
from polyclinic.runs import clear_errors


class WaitingRoom:
    """A folder of replies; their tensors are pages of files, which the system drops at need."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def seat(self, site: str, letter: Letter) -> Letter:
        """The same letter, read from a file; one on another device than the CPU stays there."""
        if letter.weights.flat.device.type != "cpu":
            return letter
        file = self.folder / f"{site}.safetensors"
        extras = {name: tensor.contiguous() for name, tensor in letter.extras.items()}
        with clear_errors(file):
            self.folder.mkdir(parents=True, exist_ok=True)
            save_file(nested(weights={"flat": letter.weights.flat}, extras=extras), file)
        tensors, _ = load_tensors(file)
        weights = Weights(letter.weights.layout, tensors["weights/flat"])
        return Letter(weights, group(tensors, "extras"), letter.numbers)

    def clear(self) -> None:
        """Send everybody home."""
        shutil.rmtree(self.folder, ignore_errors=True)
