"""Ditto: a personal model held near the shared one (Li et al., ICML 2021, arXiv 2012.04221)."""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field

from polyclinic.federation.method import Method
from polyclinic.federation.site import Site
from polyclinic.methods.pulling import towards

PERSONAL = "personal"


@dataclass(frozen=True)
class Ditto(Method):
    """FedAvg, and beside it a personal model that is pulled towards the weights received."""

    pull: Annotated[float, Field(ge=0)] = 0.1
    """Strength of the pull towards the shared weights."""

    paper_weighting: ClassVar[str] = "uniform"

    def receive(self, site: Site) -> None:
        """The shared weights; at the first visit the personal model starts from them too."""
        super().receive(site)
        site.remember(PERSONAL)

    def train(self, site: Site) -> None:
        """Train the shared model, then the personal one."""
        site.fit(self.loss)
        with site.using(PERSONAL):
            site.fit(self.loss, hook=towards(site.message.weights, self.pull))

    def in_use(self, site: Site) -> AbstractContextManager[None]:
        """The personal model."""
        return site.using(PERSONAL)
