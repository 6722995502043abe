"""The server's checkpoints: where a run stands, where it stood before, the best round so far."""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from polyclinic.engine.states import StateFolder
from polyclinic.engine.tensors import DamagedFile
from polyclinic.federation.server import Server
from polyclinic.federation.weights import Weights

OWNER = "server"


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
    def from_texts(cls, texts: Mapping[str, str]) -> "Progress":
        """From the texts of a file."""
        numbers = {name: float(texts[name]) for name in ("best_score", "seconds")}
        return cls(int(texts["round"]), int(texts["best_round"]), **numbers)


class Checkpoint:
    """The folder of a run's checkpoints: a file of the server's for each round that is kept.

    These are the last finished round, the one before it, in case the newer file gets damaged, and
    the best round of either. The sites' own states lie beside it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.states = StateFolder(folder)
        self.generations: list[Progress] = []  # the newest first, two at most
        self.damaged: list[str] = []  # newer files that could not be used

    @property
    def rounds(self) -> list[int]:
        """The rounds that there is a file of, the newest first."""
        return self.states.rounds(OWNER)[::-1]

    @property
    def exists(self) -> bool:
        """Whether a round was finished here."""
        return bool(self.rounds)

    @property
    def needed(self) -> set[int]:
        """The rounds that either generation can ask for."""
        return {n for each in self.generations for n in (each.round, each.best_round) if n >= 0}

    def file(self, number: int) -> Path:
        """Where the server's file of a round lies."""
        return self.states.file(OWNER, number)

    def remove(self) -> None:
        """Remove everything, the newest round first: whatever is cut off leaves no gap."""
        for number in self.rounds:
            self.file(number).unlink()
        shutil.rmtree(self.folder, ignore_errors=True)

    def save(self, server: Server, progress: Progress) -> None:
        """Note a finished round, and remove the files that nothing can ask for any more."""
        self.states.save(OWNER, progress.round, server, progress.to_texts())
        self.generations = [progress, *self.generations[:1]]
        self.states.keep_only(OWNER, self.needed)

    def load(self, server: Server) -> Progress:
        """Bring the server back to its last finished round whose file is whole."""
        self.damaged, self.generations = [], []
        for number in self.rounds:
            try:
                progress = Progress.from_texts(self.states.read(OWNER, number)[1])
            except DamagedFile as error:
                self.damaged.append(str(error))
                continue
            self.generations.append(progress)
            if len(self.generations) == 2:
                break
        if not self.generations:
            raise DamagedFile(
                f"every checkpoint in {self.folder / OWNER} is damaged; bring it back from a "
                "backup, or start afresh with --fresh"
            )
        return self.load_round(server, self.generations[0].round)

    def load_round(self, server: Server, number: int) -> Progress:
        """Bring the server to exactly this round."""
        try:
            state, texts = self.states.read(OWNER, number)
        except DamagedFile as error:
            raise DamagedFile(
                f"{error}; it is the best round, so bring it back from a backup, or start afresh "
                "with --fresh"
            ) from error
        device = server.weights.flat.device
        # In the order of the server's weights: files sort by name.
        names = [name for name in server.weights if name in state.weights]
        server.weights = Weights.pack({name: state.weights[name].to(device) for name in names})
        server.memory = {name: tensor.to(device) for name, tensor in state.memory.items()}
        progress = Progress.from_texts(texts)
        server.round = progress.round
        return progress
