"""IOP-FL: models inside and outside a federation (Jiang et al., TMI 2023, arXiv 2204.08467)."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from pydantic import Field

from polyclinic.federation.message import Message
from polyclinic.federation.method import Method
from polyclinic.federation.mixing import mix
from polyclinic.federation.site import Site
from polyclinic.federation.weights import Weights
from polyclinic.methods.routing import Routing

TRAJECTORY = "trajectory"


@dataclass(frozen=True)
class IOPFL(Method):
    """FedAvg whose sites use the moving average of what they trained, `past` of it being old.

    A site that took no part routes its images between the sites' models and the shared one.
    """

    past: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Share of the old average in the moving average; 0 uses the model as last trained."""
    outside_routing: Routing = field(default_factory=Routing)
    """How a site that took no part routes between the models."""

    title: ClassVar[str] = "IOP-FL"

    def send(self, site: Site) -> Message:
        """The weights as trained, which also move the trajectory."""
        site.remember(TRAJECTORY)  # at first it is what was trained, and the average the same
        old = Weights.pack({n: site.memory[f"{TRAJECTORY}/{n}"] for n in site.weights})
        moved = mix({"old": old, "trained": site.weights}, [self.past, 1 - self.past])
        site.memory.update({f"{TRAJECTORY}/{n}": tensor for n, tensor in moved.items()})
        return super().send(site)

    def finalize(self, site: Site) -> Message:
        """Who never trained begins its trajectory with the weights received."""
        self.receive(site)
        site.remember(TRAJECTORY)
        return Message()

    def in_use(self, site: Site) -> AbstractContextManager[None]:
        """The trajectory."""
        return site.using(TRAJECTORY)

    def outside(self, site: Site, models: Mapping[str, Weights]) -> Site:
        """Route between the sites' trajectories and the shared model."""
        return self.outside_routing.adapted(site, [*models.values(), site.weights.copy()])
