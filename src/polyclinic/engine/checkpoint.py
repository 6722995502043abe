"""The server's checkpoint: where a run stands, and the best round so far."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from polyclinic.engine.tensors import group, load_tensors, nested, save_tensors
from polyclinic.federation.server import Server
from polyclinic.federation.weights import Weights
from polyclinic.runs import replacing


@dataclass(frozen=True)
class Progress:
    """Where a run stands: its last finished round, the best one by validation, seconds spent."""

    round: int
    best_round: int = -1
    best_score: float = float("-inf")
    seconds: float = 0.0

    def to_texts(self) -> dict[str, str]:
        """As texts for a file."""
        return {name: repr(value) for name, value in vars(self).items()}

    @classmethod
    def from_texts(cls, texts: Mapping[str, str]) -> Progress:
        """From the texts of a file."""
        numbers = {name: float(texts[name]) for name in ("best_score", "seconds")}
        return cls(int(texts["round"]), int(texts["best_round"]), **numbers)


class Checkpoint:
    """The folder of a run's checkpoint; the sites' own states lie beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.latest = folder / "server.safetensors"
        self.best = folder / "server-best.safetensors"

    @property
    def exists(self) -> bool:
        """Whether a round was finished here."""
        return self.latest.exists()

    def save(self, server: Server, progress: Progress) -> None:
        """Note a finished round; if it is the best one so far, keep it as that too."""
        tensors = nested(weights=server.weights, memory=server.memory)
        save_tensors(self.latest, tensors, progress.to_texts())
        if progress.round == progress.best_round:
            with replacing(self.best) as unfinished:
                shutil.copyfile(self.latest, unfinished)

    def load(self, server: Server, *, best: bool = False) -> Progress:
        """Bring the server back to its last finished round, or to the best one."""
        tensors, texts = load_tensors(self.best if best else self.latest)
        device = server.weights.flat.device
        server.weights = Weights.pack(_on(device, group(tensors, "weights"), server.weights))
        server.memory = _on(device, group(tensors, "memory"))
        progress = Progress.from_texts(texts)
        server.round = progress.round
        return progress


def _on(
    device: object, tensors: Mapping[str, Tensor], order: Mapping[str, object] | None = None
) -> dict[str, Tensor]:
    """The tensors on a device, in the order of the server's weights: files sort by name."""
    names = [name for name in order or tensors if name in tensors]
    return {name: tensors[name].to(device) for name in names}  # type: ignore[call-overload]
