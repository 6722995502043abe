"""FedRep: a shared body under private heads (Collins et al., ICML 2021, arXiv 2102.07078)."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from polyclinic.federation.method import Method
from polyclinic.federation.site import Site
from polyclinic.networks.contract import Segmenter
from polyclinic.networks.parts import Names, everything, part


@dataclass(frozen=True)
class FedRep(Method):
    """Private heads over a shared body: each round the head learns first, then the body."""

    head_share: Annotated[float, Field(ge=0)] = 0.4
    """Steps of the head, as a share of the round's; the body's steps come on top."""

    def shares(self, net: Segmenter) -> Names:
        """All but the head."""
        return everything(net) - self.head(net)

    def head(self, net: Segmenter) -> Names:
        """The private part."""
        return part(net, "head")

    def train(self, site: Site) -> None:
        """Head first with the body at rest, then the body with the head at rest."""
        head = self.head(site.net)
        site.fit(self.loss, only=head, steps=round(self.head_share * site.steps), stream="head")
        site.fit(self.loss, only=everything(site.net) - head)
