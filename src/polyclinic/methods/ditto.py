"""Ditto: a personal model held near the shared one (Li et al., ICML 2021, arXiv 2012.04221)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from polyclinic.federation.method import Method
from polyclinic.federation.site import Parameters, Site

PERSONAL = "personal"


@dataclass(frozen=True)
class Ditto(Method):
    """FedAvg, and beside it a personal model that is pulled towards the weights received."""

    pull: Annotated[float, Field(ge=0)] = 0.1
    """Strength of the pull towards the shared weights."""

    def receive(self, site: Site) -> None:
        """The shared weights; at the first visit the personal model starts from them too."""
        super().receive(site)
        site.remember(PERSONAL)

    def train(self, site: Site) -> None:
        """Train the shared model, then the personal one."""
        site.fit(self.loss)
        with site.using(PERSONAL):
            site.fit(self.loss, hook=self.towards_received(site))

    def towards_received(self, site: Site) -> Callable[[Parameters], None]:
        """A hook that pulls the weights towards the ones received at the start of the round."""

        def towards(parameters: Parameters) -> None:
            for name, parameter in parameters.items():
                if parameter.grad is not None and self.pull:
                    distance = parameter.detach() - site.message.weights[name].to(site.device)
                    parameter.grad.add_(distance, alpha=self.pull)

        return towards

    def in_use(self, site: Site) -> AbstractContextManager[None]:
        """The personal model."""
        return site.using(PERSONAL)
