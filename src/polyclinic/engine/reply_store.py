"""Where the replies of a round wait for each other: in files, so that memory holds none of them."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from safetensors.torch import save_file

from polyclinic.engine.tensors import open_tensors
from polyclinic.federation.message import Message
from polyclinic.federation.weights import Weights, group, nested
from polyclinic.runs import clear_errors


@dataclass(frozen=True)
class ReplyStore:
    """A folder of replies; their tensors are pages of files, which the system drops at need."""

    folder: Path

    def store(self, site: str, message: Message) -> Message:
        """The same message, read from a file; one on another device than the CPU stays there."""
        if message.weights.flat.device.type != "cpu":
            return message
        file = self.folder / f"{site}.safetensors"
        extras = {name: tensor.contiguous() for name, tensor in message.extras.items()}
        with clear_errors(file):
            self.folder.mkdir(parents=True, exist_ok=True)
            save_file(nested(weights={"flat": message.weights.flat}, extras=extras), file)
        tensors, _ = open_tensors(file)
        weights = Weights(message.weights.layout, tensors["weights/flat"])
        return Message(weights, group(tensors, "extras"), message.numbers)

    def clear(self) -> None:
        """Remove all replies."""
        shutil.rmtree(self.folder, ignore_errors=True)
