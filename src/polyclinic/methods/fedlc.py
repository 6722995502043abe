"""FedLC (LC-Fed): personalizing via local calibration (Wang et al., ECCV 2022, arXiv 2207.04655).

Another method, which calibrates logits (ICML 2022), is called FedLC too; this one is for images.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar, Literal, cast

import torch
from pydantic import Field
from torch import Tensor

from polyclinic.data.cases import Batch
from polyclinic.federation.message import Message
from polyclinic.federation.method import Method, Stage, ignore, silent
from polyclinic.federation.optimizing import after_rounds
from polyclinic.federation.server import Server
from polyclinic.federation.site import Site
from polyclinic.federation.weights import Weights
from polyclinic.methods.site_contrast import CODE, code, gate_notes, site_contrast
from polyclinic.networks.contract import Segmenter
from polyclinic.networks.gated_segmenter import GatedSegmenter
from polyclinic.networks.head_calibration import (
    CALIBRATION,
    PEERS,
    ROWS,
    TRAINED,
    Attention,
    CalibratedSegmenter,
    as_row,
)
from polyclinic.networks.parts import Names, everything, parameters, part, under
from polyclinic.runs import SiteInfo

HEAD = "head"


@dataclass(frozen=True)
class Calibration:
    """How the calibration of heads is made and how long it learns, after the last round."""

    epochs: Annotated[int, Field(ge=0)] = 20
    """Passes over the site's images; 0 leaves the calibration as it began."""
    iterations: Annotated[int, Field(ge=0)] | None = None
    """Steps, in place of epochs."""
    rate: Annotated[float, Field(gt=0)] = 1.0
    """Learning rate over the study's."""
    kernel: Literal[1, 3] = 3
    """Side of its convolution in pixels."""
    attention: Attention = "peaks"
    """Whether disagreement counts around its peaks or as it is."""


@dataclass(frozen=True)
class FedLC(Method):
    """Private heads over a shared body with a site's gate, then calibration where heads disagree.

    Each round the head learns first, as in FedRep, then the body, in which the gates of different
    sites are driven apart by `contrast`. For the calibration all heads go to all sites.
    """

    head_share: Annotated[float, Field(ge=0)] = 0.4
    """Steps of the head over those of the body in a round; 0 leaves the head."""
    contrast: Annotated[float, Field(ge=0)] = 0.1
    """Weight of the contrast between the sites' gates; 0 is without it."""
    site_gate: Literal["average+max", "average", "none"] = "average+max"
    """Pooling in front of the site gate; `none` is without a gate."""
    calibrate: bool = True
    """Calibrate heads after the last round; otherwise heads never leave their sites."""
    calibration: Calibration = field(default_factory=Calibration)
    """How the heads are calibrated."""

    paper_weighting: ClassVar[str] = "uniform"

    def adapt(self, net: Segmenter, sites: tuple[SiteInfo, ...]) -> Segmenter:
        """The network with a gate at its deepest map and, where wanted, calibration."""
        pooling = None if self.site_gate == "none" else self.site_gate
        if not self.calibrate:
            return GatedSegmenter(net, sites=len(sites), pooling=pooling, projected=False)
        return CalibratedSegmenter(
            net,
            sites=len(sites),
            pooling=pooling,
            kernel=self.calibration.kernel,
            attention=self.calibration.attention,
        )

    def shares(self, net: Segmenter) -> Names:
        """The body and, where heads are compared, the head; never code and calibration."""
        if not self.calibrate:
            return everything(net) - part(net, HEAD) - {CODE}
        return everything(net) - self.server_made(net) - under(net, CALIBRATION) - {CODE}

    def keeps(self, net: Segmenter) -> Names:
        """The site's own head too: no average takes its place."""
        return super().keeps(net) | part(net, HEAD)

    def server_made(self, net: Segmenter) -> Names:
        """The other sites' heads."""
        return under(net, PEERS) if self.calibrate else frozenset()

    def tuned_outside(self, net: Segmenter, shared: Names) -> Names:  # noqa: ARG002
        """A head of its own, although heads travel."""
        return part(net, HEAD)

    def each_round(self) -> tuple[Stage, ...]:
        """One stage, in which heads leave their sites where they are to be compared."""
        return (replace(super().each_round()[0], discloses=self.calibrate),)

    def after(self) -> tuple[Stage, ...]:
        """Each site learns to calibrate its head."""
        if not self.calibrate:
            return ()
        return (Stage("calibrate heads", silent, self.learn_calibration, ignore, finalizes=True),)

    # The server's half.

    def start(self, server: Server) -> None:
        """Every site begins with the same head."""
        if self.calibrate:
            for info in server.sites:
                server.memory[f"{HEAD}/{info.name}"] = head_row(server.weights)

    def message(self, server: Server, info: SiteInfo) -> Message:
        """The body and, where heads are compared, those of all others."""
        if not self.calibrate:
            return Message(server.weights)
        others = [each for each in server.sites if each != info]
        rows = [server.memory[f"{HEAD}/{each.name}"] for each in others]
        stacked = torch.stack(rows) if rows else head_row(server.weights)[None][:0]
        return Message(Weights.pack({**server.weights, ROWS: stacked}))

    def combine(self, server: Server, replies: Mapping[str, Message]) -> None:
        """The mean of the replies; heads are also kept one by one."""
        super().combine(server, replies)
        if self.calibrate:
            for site, reply in replies.items():
                server.memory[f"{HEAD}/{site}"] = head_row(reply.weights)

    # The site's half.

    def receive(self, site: Site) -> None:
        """Take up all but the head, which stays the site's own from its first visit on."""
        own = site.take(part(site.net, HEAD))
        site.load(site.message.weights)
        if not site.first:
            site.load(own)
        if self.site_gate != "none":
            site.load(code(site))

    def train(self, site: Site) -> None:
        """Head first with the body at rest, then the body with the head at rest."""
        head = part(site.net, HEAD)
        body = everything(site.net) - head
        body -= under(site.net, CALIBRATION) if self.calibrate else frozenset()
        site.fit(self.loss, only=head, steps=round(self.head_share * site.steps), stream="head")
        site.fit(self.loss, only=body)

    def loss(self, site: Site, batch: Batch) -> Tensor:
        """Labels and the contrast between the sites' gates."""
        net = cast(GatedSegmenter, site.net)
        seen = net.look(batch.images)
        loss = site.task_loss(seen.logits, batch)
        if self.contrast and net.gate is not None and seen.gates is not None:
            others = net.gate.of_others(seen.deepest)
            loss = loss + self.contrast * site_contrast(seen.gates, others, "squared")
        return loss

    def diagnose(self, site: Site, batch: Batch) -> dict[str, float]:
        """What became of the gates, and what another site's code would change."""
        return gate_notes(site, batch)

    def learn_calibration(self, site: Site) -> Message:
        """Train the calibration alone, everything before it at rest."""
        site.load({TRAINED: torch.ones(())})
        how = self.calibration
        site.fit(
            calibration_loss,
            only=under(site.net, CALIBRATION) & parameters(site.net),
            steps=site.steps_of(iterations=how.iterations, epochs=how.epochs),
            training=after_rounds(site.training, how.rate),
        )
        return Message()


def calibration_loss(site: Site, batch: Batch) -> Tensor:
    """The supervised loss of the calibrated head, over features that get no gradient."""
    net = cast(CalibratedSegmenter, site.net)
    net.rest_below()
    with torch.no_grad():
        seen = net.look(batch.images)
    logits = net.calibrated(seen.maps[-1], seen.logits)
    return site.task_loss(logits, batch)


def head_row(weights: Weights) -> Tensor:
    """The head among these weights, one tensor behind the other."""
    return as_row({name: each for name, each in weights.items() if name.startswith(f"{HEAD}.")})
