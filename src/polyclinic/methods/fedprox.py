"""FedProx: sites held near the shared model (Li et al., MLSys 2020, arXiv 1812.06127)."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from polyclinic.federation.method import Method
from polyclinic.federation.site import Site
from polyclinic.methods.pulling import towards


@dataclass(frozen=True)
class FedProx(Method):
    """FedAvg whose sites are pulled towards the weights they received, against drift."""

    pull: Annotated[float, Field(ge=0)] = 0.01
    """Strength of the pull (the paper's mu), on half the squared distance; 0 is FedAvg."""

    def train(self, site: Site) -> None:
        """Learn under the pull."""
        site.fit(self.loss, hook=towards(site.message.weights, self.pull))
