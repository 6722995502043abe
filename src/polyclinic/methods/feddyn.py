"""FedDyn: dynamic regularization (Acar et al., ICLR 2021, arXiv 2111.04263)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from pydantic import Field

from polyclinic.federation.message import Message
from polyclinic.federation.method import Method
from polyclinic.federation.server import Server
from polyclinic.federation.site import Site
from polyclinic.federation.weights import Weights
from polyclinic.methods.pulling import towards

DRIFT = "drift"  # what all of a site's, or the mean site's, rounds added to weights received


@dataclass(frozen=True)
class FedDyn(Method):
    """Sites are held near the shared weights less their own drift; the server adds the mean drift.

    Where nothing moves any more, all sites' gradients cancel, weighted as sites are averaged.
    """

    pull: Annotated[float, Field(ge=0)] = 0.1
    """Strength of the pull (the paper's α), on half the squared distance; 0 is FedAvg."""

    paper_weighting: ClassVar[str] = "uniform"
    mean_only: ClassVar[str] = (
        "the drift it adds is the sum of all sites' changes since the first round"
    )

    def train(self, site: Site) -> None:
        """Learn near the shared weights less the drift, then add this round's change to it."""
        if not self.pull:
            site.fit(self.loss)
            return
        learned = frozenset(name for name, _ in site.net.named_parameters()) & site.shared
        received = site.take(learned)
        drift = site.memory.get(DRIFT, torch.zeros_like(received.flat))
        goal = Weights(received.layout, received.flat - drift)
        site.fit(self.loss, hook=towards(goal, self.pull))
        site.memory[DRIFT] = drift + (site.take(learned).flat - received.flat)

    def combine(self, server: Server, replies: Mapping[str, Message]) -> None:
        """The mean of the replies, and the drift of the mean site on top of it."""
        before = server.weights
        super().combine(server, replies)
        if not self.pull:
            return
        learned = server.weights.names - server.buffers
        mean = server.weights.pick(learned)
        drift = server.memory.get(DRIFT, torch.zeros_like(mean.flat))
        server.memory[DRIFT] = drift + server.present(replies) * (
            mean.flat - before.pick(learned).flat
        )
        server.weights.load(Weights(mean.layout, mean.flat + server.memory[DRIFT]))
