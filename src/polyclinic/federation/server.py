"""The server during a run."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

from polyclinic.config import FederationSettings, TrainingSettings
from polyclinic.federation.combining import combined
from polyclinic.federation.message import Message
from polyclinic.federation.mixing import mix
from polyclinic.federation.weights import Weights
from polyclinic.networks.parts import Names
from polyclinic.runs import RoundTable, SiteInfo


@dataclass
class Server:
    """The shared weights and the server's memory: all that outlives a round on its side."""

    sites: tuple[SiteInfo, ...]
    weights: Weights
    settings: FederationSettings
    seed: int
    round: int = 0
    memory: dict[str, Tensor] = field(default_factory=dict)
    tables: list[RoundTable] = field(default_factory=list)  # for the record, emptied each round
    buffers: Names = frozenset()  # shared weights that no gradient moves, such as statistics
    training: TrainingSettings = field(default_factory=TrainingSettings)  # of the sites

    def note(self, name: str, table: Tensor) -> None:
        """Put a table, with a row and a column for each site, into the record of this round."""
        sites = tuple(info.name for info in self.sites)
        values = tuple(map(tuple, table.tolist()))
        self.tables.append(
            RoundTable(round=self.round, name=name, rows=sites, columns=sites, values=values)
        )

    def others(self, group: str, info: SiteInfo) -> dict[str, Tensor]:
        """What is remembered of all sites but one, by names such as `group/site/name`."""
        own = f"{group}/{info.name}/"
        known = [key for key in sorted(self.memory) if key.startswith(f"{group}/")]
        return {key: self.memory[key] for key in known if not key.startswith(own)}

    def forget(self, group: str) -> None:
        """Remember nothing of this group any more."""
        for key in [key for key in self.memory if key.startswith(f"{group}/")]:
            del self.memory[key]

    def combined(self, replies: Mapping[str, Message]) -> Weights:
        """The replies' weights as one: their mean, or what the study's rule makes of them."""
        parts = {site: reply.weights for site, reply in replies.items()}
        if self.settings.combine == "mean":
            return mix(parts, self.row(replies))
        return combined(parts, self.weights, self.settings)

    def row(self, replies: Mapping[str, Message]) -> list[float]:
        """Each reply's share of the whole: by images, by steps, or equal; it sums to one."""
        if self.settings.weighting == "uniform":
            counts = [1.0] * len(replies)
        else:
            number = {"samples": "images", "steps": "steps"}[self.settings.weighting]
            counts = [reply.numbers[number] for reply in replies.values()]
            counts = counts if any(counts) else [1.0] * len(replies)
        total = sum(counts)
        return [count / total for count in counts]

    def present(self, replies: Mapping[str, Message]) -> float:
        """What the sites that replied count for among all, 0 to 1.

        Where steps count, sites do alike here: nobody knows how many an absent one would take.
        """
        if self.settings.weighting != "samples":
            return len(replies) / len(self.sites)
        counts = {site.name: site.train for site in self.sites}
        return sum(counts[name] for name in replies) / sum(counts.values())
