"""FedBN: normalization stays at the site (Li et al., ICLR 2021, arXiv 2102.07623)."""

from dataclasses import dataclass
from typing import ClassVar

from polyclinic.federation.method import Method
from polyclinic.networks.contract import Segmenter
from polyclinic.networks.parts import Names, everything, nonempty, norms


@dataclass(frozen=True)
class FedBN(Method):
    """FedAvg, but every BatchNorm layer (scale, shift and statistics) is private to its site."""

    paper_weighting: ClassVar[str] = "uniform"

    def shares(self, net: Segmenter) -> Names:
        """All but the norm layers, which are found by their type."""
        return everything(net) - nonempty(
            norms(net), net, "FedBN keeps BatchNorm layers at the site"
        )
