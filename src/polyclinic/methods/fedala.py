"""FedALA: adaptive local aggregation (Zhang et al., AAAI 2023, arXiv 2212.01197)."""

from dataclasses import dataclass, field
from typing import Literal

from polyclinic.data.cases import Batch
from polyclinic.federation.method import Method
from polyclinic.federation.site import Site
from polyclinic.methods.learned_mixing import Mixing, mixture_notes, receive_mixed
from polyclinic.networks.contract import Segmenter
from polyclinic.networks.parts import Names, parameters, part


@dataclass(frozen=True)
class FedALA(Method):
    """FedAvg whose sites start a round from a learned blend of their own and the received weights.

    The blend covers the decoder with the head, or the head alone; below it the received weights are
    taken as they are, and so are running statistics everywhere.
    """

    blended: Literal["decoder", "head"] = "decoder"
    """The part that is blended; `decoder` includes the head."""
    mixing: Mixing = field(default_factory=Mixing)
    """How the blend is learned."""

    def keeps(self, net: Segmenter) -> Names:
        """The part that will be blended with the next weights received."""
        names = part(net, "head")
        if self.blended == "decoder":
            names |= part(net, "decoder")
        return names & parameters(net)

    def receive(self, site: Site) -> None:
        """Take up the weights received, blending the upper part with the site's own."""
        receive_mixed(site, self.keeps(site.net), self.loss, self.mixing)

    def diagnose(self, site: Site, batch: Batch) -> dict[str, float]:  # noqa: ARG002
        """What became of W."""
        return mixture_notes(site)
