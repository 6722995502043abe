"""pFedMe: personal models by Moreau envelopes (Dinh et al., NeurIPS 2020, arXiv 2006.08848)."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from pydantic import Field

from polyclinic.federation.message import Message
from polyclinic.federation.method import Method
from polyclinic.federation.mixing import mix
from polyclinic.federation.server import Server
from polyclinic.federation.site import Parameters, Site
from polyclinic.methods.pulling import towards

PERSONAL = "personal"


@dataclass(frozen=True)
class PFedMe(Method):
    """A personal model held near the site's shared weights, which follow it now and then.

    After every `inner_steps` the shared weights go the share `follow` of the way to the personal
    ones (the paper's learning rate times its λ); the server goes `server_rate` of the way to the
    mean.
    """

    pull: Annotated[float, Field(ge=0)] = 0.1
    """Strength of the pull towards the shared weights (λ), on half the squared distance."""
    inner_steps: Annotated[int, Field(ge=1)] = 2
    """Steps of the personal model before the shared weights follow it."""
    follow: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Share of the way that the shared weights follow, 0 to 1; 0 leaves them as they began."""
    server_rate: Annotated[float, Field(gt=0)] = 1.0
    """Share of the way that the server goes to the mean; 1 is the mean, more goes beyond."""

    title: ClassVar[str] = "pFedMe"
    paper_weighting: ClassVar[str] = "uniform"
    mean_only: ClassVar[str] = ""

    def receive(self, site: Site) -> None:
        """The shared weights; before its first training they are the personal model too."""
        super().receive(site)
        site.remember(PERSONAL)

    def train(self, site: Site) -> None:
        """Train the personal model from the weights received; the shared ones follow it."""
        shared = {name: p.detach().clone() for name, p in site.net.named_parameters()}
        done, pull = 0, towards(shared, self.pull)

        def follow(parameters: Parameters) -> None:
            for name, parameter in parameters.items():
                shared[name] = torch.lerp(shared[name], parameter.detach(), self.follow)

        def towards_shared(parameters: Parameters) -> None:
            nonlocal done
            if done and done % self.inner_steps == 0:
                follow(parameters)
            done += 1
            pull(parameters)

        site.fit(self.loss, hook=towards_shared)
        follow(dict(site.net.named_parameters()))
        personal = site.weights.copy()
        site.memory.update({f"{PERSONAL}/{name}": personal[name] for name in personal})
        site.load(shared)

    def combine(self, server: Server, replies: Mapping[str, Message]) -> None:
        """Go towards the mean of the sites' shared weights; statistics are averaged."""
        before = server.weights
        super().combine(server, replies)
        if self.server_rate != 1:
            learned = server.weights.names - server.buffers
            both = {"old": before.pick(learned), "new": server.weights.pick(learned)}
            server.weights.load(mix(both, [1 - self.server_rate, self.server_rate]))

    def in_use(self, site: Site) -> AbstractContextManager[None]:
        """The personal model."""
        return site.using(PERSONAL)
