"""LG-FedAvg: own representations under a common head (Liang et al., 2020, arXiv 2001.01523)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from pydantic import Field

from polyclinic.federation.message import Message
from polyclinic.federation.method import Method, Stage
from polyclinic.federation.server import Server
from polyclinic.federation.weights import Weights, group
from polyclinic.methods.pflfe import last_layers
from polyclinic.networks.contract import Segmenter
from polyclinic.networks.parts import Names, everything, part
from polyclinic.runs import SiteInfo

START, WAITS = "start", "waits"  # in the server's memory: the common start, and who lacks it


@dataclass(frozen=True)
class LGFedAvg(Method):
    """A private encoder under a shared decoder and head, after a warm start by FedAvg.

    The warm start shares everything; its last average is the encoder that every site goes on from.
    """

    warm_start: Annotated[float, Field(ge=0, le=1)] = 0.3
    """Share of the rounds that are FedAvg's, 0 to 1; 0 is without a warm start."""
    shared_layers: Annotated[int, Field(ge=1)] | None = None
    """Number of last layers that are shared, in place of decoder and head."""

    title: ClassVar[str] = "LG-FedAvg"

    def shares(self, net: Segmenter) -> Names:
        """Decoder and head, or their last layers."""
        if self.shared_layers:
            return last_layers(net, self.shared_layers)
        return part(net, "decoder") | part(net, "head")

    def warm_rounds(self, rounds: int) -> int:
        """The share of the rounds that are FedAvg's."""
        return round(self.warm_start * rounds)

    def warm_round(self) -> tuple[Stage, ...]:
        """A round of FedAvg, in which the encoder travels too."""
        return (Stage("warm", self.message, self.visit, self.combine, shares=everything),)

    def message(self, server: Server, info: SiteInfo) -> Message:
        """The shared weights, and the common start for a site that has not yet gone on from it."""
        if f"{WAITS}/{info.name}" not in server.memory:
            return Message(server.weights)
        return Message(Weights.pack({**server.weights, **group(server.memory, START)}))

    def combine(self, server: Server, replies: Mapping[str, Message]) -> None:
        """The mean; what is shared no more is kept until every site has gone on from it."""
        before = server.weights
        super().combine(server, replies)
        rest = before.pick(before.names - server.weights.names)
        if rest:
            server.memory.update({f"{START}/{name}": rest[name].clone() for name in rest})
            server.memory.update({f"{WAITS}/{info.name}": torch.ones(()) for info in server.sites})
        for site in replies:
            server.memory.pop(f"{WAITS}/{site}", None)
        if not group(server.memory, WAITS):
            server.forget(START)
