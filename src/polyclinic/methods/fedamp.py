"""FedAMP: sites attend to the sites that are like them (Huang et al., AAAI 2021, 2007.03797).

The attention by cosines is the form that the paper gives for deep networks (HeurFedAMP).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from polyclinic.federation.message import Message
from polyclinic.federation.method import Method
from polyclinic.federation.mixing import mix
from polyclinic.federation.server import Server
from polyclinic.federation.site import Site
from polyclinic.federation.weights import Weights
from polyclinic.methods.pulling import towards
from polyclinic.networks.contract import Segmenter
from polyclinic.networks.parts import Names, everything
from polyclinic.runs import SiteInfo

MODEL = "model"


@dataclass(frozen=True)
class FedAMP(Method):
    """Each site starts from, and is held near, a mixture of its own and the likest sites' models.

    A site's own model has `own_share` of it; the others share the rest by the likeness of their
    weights, the more unequally the higher the `sharpness`.
    """

    own_share: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Share of a site's own model in its mixture, 0 to 1; 1 takes nothing from others."""
    sharpness: Annotated[float, Field(ge=0)] = 25.0
    """Factor of the cosines before the softmax; 0 shares the rest evenly."""
    pull: Annotated[float, Field(ge=0)] = 0.1
    """Strength of the pull towards the mixture: pull / 2 times the squared distance; 0 is none."""

    mean_only: ClassVar[str] = (
        "every site gets a mixture of its own, by how like the others' replies are to its"
    )

    def keeps(self, net: Segmenter) -> Names:
        """Everything: each site uses the model that it trained."""
        return everything(net)

    def message(self, server: Server, info: SiteInfo) -> Message:
        """The site's mixture; the common start before its first reply."""
        models = self.models(server)
        if info.name not in models:
            return Message(server.weights)
        row = self.rows(server, models)[list(models).index(info.name)]
        return Message(mix(models, row.tolist()))

    def combine(self, server: Server, replies: Mapping[str, Message]) -> None:
        """Keep each site's newest model; their mean is for sites that took no part yet."""
        super().combine(server, replies)
        server.memory.update({f"{MODEL}/{s}": r.weights.flat.clone() for s, r in replies.items()})
        models = self.models(server)
        if len(models) == len(server.sites):
            server.note("attention", self.rows(server, models))

    def models(self, server: Server) -> dict[str, Weights]:
        """The newest models of the sites that have sent one."""
        flats = {info.name: server.memory.get(f"{MODEL}/{info.name}") for info in server.sites}
        layout = server.weights.layout
        return {site: Weights(layout, flat) for site, flat in flats.items() if flat is not None}

    def rows(self, server: Server, models: Mapping[str, Weights]) -> Tensor:
        """What each model's mixture (a row) consists of; running statistics make no likeness."""
        learned = server.weights.names - server.buffers
        return attention(
            torch.stack([model.pick(learned).flat for model in models.values()]),
            self.own_share,
            self.sharpness,
        )

    def train(self, site: Site) -> None:
        """Learn near the mixture received."""
        site.fit(self.loss, hook=towards(site.weights.copy(), self.pull))

    def finalize(self, site: Site) -> Message:
        """Use the model as it was trained here."""
        if site.first:
            self.receive(site)
        return Message()


def attention(models: Tensor, own_share: float, sharpness: float) -> Tensor:
    """Rows that sum to one: the own share, and the rest by a softmax of cosines (of N×D)."""
    count = len(models)
    if count == 1:
        return torch.ones(1, 1, dtype=torch.float64)
    units = torch.nn.functional.normalize(models.double(), dim=1)
    others = (sharpness * units @ units.T).fill_diagonal_(-torch.inf).softmax(dim=1)
    return (1 - own_share) * others + own_share * torch.eye(count, dtype=torch.float64)
