"""What sites keep between visits: a file for each site and round, never given to the server."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from polyclinic.engine.tensors import group, load_tensors, nested, save_tensors


@dataclass(frozen=True)
class SiteState:
    """A site's private weights and its memory."""

    weights: Mapping[str, Tensor]
    memory: Mapping[str, Tensor]


class StateFolder:
    """The states of sites on disk; a site's newest state up to a round is the one in force."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def load(self, site: str, since: int) -> SiteState | None:
        """The newest state of a site up to round `since`, or None before its first visit."""
        rounds = [number for number in self.rounds(site) if number <= since]
        return self.read(site, max(rounds))[0] if rounds else None

    def read(self, site: str, number: int) -> tuple[SiteState, dict[str, str]]:
        """Exactly the state of this round, and what is noted about it."""
        tensors, about = load_tensors(self.file(site, number))
        return SiteState(group(tensors, "weights"), group(tensors, "memory")), about

    def save(self, site: str, number: int, state: SiteState, about: Mapping[str, str]) -> None:
        """Write a site's state after a round."""
        tensors = nested(weights=state.weights, memory=state.memory)
        save_tensors(self.file(site, number), tensors, about)

    def keep_only(self, site: str, needed: Iterable[int]) -> None:
        """Remove the states that none of these rounds could ask for."""
        present = self.rounds(site)
        kept = {max((n for n in present if n <= since), default=-1) for since in needed}
        for number in set(present) - kept:
            self.file(site, number).unlink()

    def file(self, site: str, number: int) -> Path:
        """Where a site's state after a round lies."""
        return self.path / site / f"round-{number:05d}.safetensors"

    def rounds(self, site: str) -> list[int]:
        """The rounds of which a site has a state."""
        files = (self.path / site).glob("round-*.safetensors")
        return sorted(int(file.stem.removeprefix("round-")) for file in files)
