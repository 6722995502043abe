"""What is kept of sites and the server: states between rounds, and the final models of a run."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from polyclinic.engine.run import Assignment
from polyclinic.engine.tensors import load_tensors, save_tensors
from polyclinic.federation.server import Server
from polyclinic.federation.weights import group, nested
from polyclinic.runs import Finished, RunError, RunFolder

END = "end"  # the end of the run among the texts of the server's model


@dataclass(frozen=True)
class SiteState:
    """A site's private weights and its memory."""

    weights: Mapping[str, Tensor]
    memory: Mapping[str, Tensor]


def tensors_of(owner: SiteState | Server) -> dict[str, Tensor]:
    """All that a site or the server keeps, by names that say what is what."""
    return nested(weights=owner.weights, memory=owner.memory)


def read_state(file: Path) -> tuple[SiteState, dict[str, str]]:
    """The state in a file, and what is noted about it."""
    tensors, about = load_tensors(file)
    return SiteState(group(tensors, "weights"), group(tensors, "memory")), about


@dataclass(frozen=True)
class StateFolder:
    """States on disk, by owner and round; the newest up to a round is the one in force."""

    path: Path

    def load(self, owner: str, since: int) -> SiteState | None:
        """The newest state of a site up to round `since`, or None before its first visit."""
        rounds = [number for number in self.rounds(owner) if number <= since]
        return self.read(owner, max(rounds))[0] if rounds else None

    def read(self, owner: str, number: int) -> tuple[SiteState, dict[str, str]]:
        """Exactly the state of this round, and what is noted about it."""
        return read_state(self.file(owner, number))

    def save(
        self, owner: str, number: int, state: SiteState | Server, about: Mapping[str, str]
    ) -> None:
        """Write the state after a round."""
        save_tensors(self.file(owner, number), tensors_of(state), about)

    def keep_only(self, owner: str, needed: Iterable[int]) -> None:
        """Remove the states that none of these rounds could ask for."""
        present = self.rounds(owner)
        kept = {max((n for n in present if n <= since), default=-1) for since in needed}
        for number in set(present) - kept:
            self.file(owner, number).unlink()

    def file(self, owner: str, number: int) -> Path:
        """Where the state after a round lies."""
        return self.path / owner / f"round-{number:05d}.safetensors"

    def rounds(self, owner: str) -> list[int]:
        """The rounds of which there is a state."""
        files = (self.path / owner).glob("round-*.safetensors")
        return sorted(int(file.stem.removeprefix("round-")) for file in files)


def keep_model(
    run: RunFolder,
    owner: str,
    title: str,
    state: SiteState | Server,
    assignment: Assignment,
    end: Finished | None = None,
) -> None:
    """Write the model of a site, or of the server with the end of the run, into the run folder."""
    texts = {"method": title, "network": assignment.network.name, "task": assignment.task.name}
    if end is not None:
        texts[END] = end.model_dump_json()
    save_tensors(run.weights_path(owner), tensors_of(state), texts)


def lost_end(folder: RunFolder) -> Finished | None:
    """The end of a run without checkpoint and without finished.json; None where it just began.

    An error says what to do where rounds were finished and neither is left of them.
    """
    file = folder.weights_path("server")
    if file.exists() and END in (texts := load_tensors(file)[1]):
        return Finished.model_validate_json(texts[END])
    if file.exists() or any(line.round > 0 for line in folder.rounds()):
        raise RunError(
            f"{folder.path} holds finished rounds, but its checkpoint is lost; bring the folder "
            "`checkpoint` back from a backup, or start afresh with --fresh"
        )
    return None
