"""FedPer: a private part on a shared rest (Arivazhagan et al., 2019, arXiv 1912.00818)."""

from dataclasses import dataclass
from typing import Literal

from polyclinic.federation.method import Method
from polyclinic.networks.contract import Segmenter
from polyclinic.networks.parts import Names, everything, part


@dataclass(frozen=True)
class FedPer(Method):
    """FedAvg with one part of the network private to its site: a decoder takes its head along."""

    private: Literal["head", "decoder", "encoder"] = "head"
    """Part of the network that is private; the decoder takes the head along."""

    def shares(self, net: Segmenter) -> Names:
        """All but the private part."""
        shared = everything(net) - part(net, self.private)
        return shared - part(net, "head") if self.private == "decoder" else shared
