"""Virtual classes and personalized affinity aggregation (Liu et al., TMI submission, 2024)."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar, Literal, cast

import torch
from pydantic import Field
from torch import Tensor

from polyclinic.data.batches import in_order
from polyclinic.data.cases import Batch
from polyclinic.federation.message import Message
from polyclinic.federation.method import Method
from polyclinic.federation.server import Server
from polyclinic.federation.site import Site
from polyclinic.losses import Loss, Marginal, SegmentationLoss, virtual_class_loss
from polyclinic.networks.affinity import ROLES, Projection, Role, add_affinity, affinity
from polyclinic.networks.contract import Segmenter, likeliest
from polyclinic.networks.parts import Names, everything
from polyclinic.networks.virtual_head import VirtualHead, replace_head
from polyclinic.runs import MapKind, SiteInfo

log = logging.getLogger("polyclinic")

KERNEL = "head.weight"
LOOKED_AT = 12  # images of a site, in a round
LEAST = 0.01  # the share of pixels from which a virtual class counts as used
USED, USED_SHARE, ROOM = "virtual classes used", "virtual share used", "kernels fit"

Weight = Annotated[float, Field(ge=0)]
Sharing = Literal[
    "key", "query", "matrix", "query+key", "query+matrix", "key+matrix", "all", "nothing"
]


@dataclass(frozen=True)
class VirtualClasses(Method):
    """FedAvg with frozen virtual classes in the head, and private affinities at each level.

    Without virtual classes the network has its own head; with `virtual_weight` = 0 it has the head
    of cosines without their loss, the control that differs in nothing else.
    """

    virtual_classes: Annotated[float, Field(ge=0)] = 1.0
    """Virtual classes in multiples of classes × sites; 0 is without."""
    scale: Annotated[float, Field(gt=0)] = 10.0
    """Factor on the cosines."""
    real_weight: Weight = 1.0
    """Weight of the cross entropy over real classes."""
    virtual_weight: Weight = 1.0
    """Weight of the cross entropy over virtual classes."""
    signed: bool = False
    """Count embeddings from the mean of their channels, so that they have both signs."""
    paa: bool = True
    """Affinities at each level of the decoder (PAA)."""
    paa_shares: Sharing = "key"
    """What of the affinities is shared."""
    projection: Projection = field(default_factory=Projection)
    """Layers of the affinities."""

    title: ClassVar[str] = "Virtual classes"
    paper_weighting: ClassVar[str] = "uniform"
    maps: ClassVar[MapKind] = "classes"

    def start(self, server: Server) -> None:
        """Tell where there are more kernels than directions that are orthogonal."""
        kernel = server.weights.get(KERNEL) if self.virtual_classes else None
        if kernel is None:
            return
        classes, channels = kernel.shape
        virtual = max(1, round(self.virtual_classes * classes * len(server.sites)))
        if virtual + classes > channels:
            log.warning(
                "%d virtual and %d real classes do not fit into %d channels orthogonally: take "
                "fewer (method.virtual_classes), or a wider network",
                *(virtual, classes, channels),
            )

    def adapt(self, net: Segmenter, sites: tuple[SiteInfo, ...]) -> Segmenter:
        """The network with virtual classes in its head and affinities in its decoder."""
        if self.virtual_classes:
            count = max(1, round(self.virtual_classes * net.classes * len(sites)))
            # The run's own seed: the network is made under it, on every machine alike.
            seed = torch.initial_seed()
            replace_head(net, virtual=count, scale=self.scale, seed=seed, signed=self.signed)
        if self.paa:
            add_affinity(net, self.projection)
        return net

    def shares(self, net: Segmenter) -> Names:
        """All but the private affinities; virtual classes are no weights at all."""
        return everything(net) - affinity(net, *self.private_roles)

    @property
    def private_roles(self) -> tuple[Role, ...]:
        """What of the affinities stays at the site."""
        shared = ROLES if self.paa_shares == "all" else self.paa_shares.split("+")
        return tuple(role for role in ROLES if role not in shared)

    @property
    def attracts(self) -> bool:
        """Whether there are virtual classes that a loss draws pixels to."""
        return bool(self.virtual_classes and self.virtual_weight)

    def send(self, site: Site) -> Message:
        """The weights, and how many virtual classes the site's pixels are nearest to."""
        reply = super().send(site)
        if not self.attracts:
            return reply
        few = site.data.train.select(range(min(LOOKED_AT, len(site.data.train))))
        site.net.eval()
        seen = next(iter(in_order(few, batch=LOOKED_AT, device=site.device)))
        return replace(reply, numbers={USED: self.used(site, seen)[USED]})

    @torch.no_grad()
    def used(self, site: Site, batch: Batch) -> dict[str, float]:
        """How many virtual classes at least a hundredth of the pixels is nearest to."""
        shares = cast(VirtualHead, site.net.head).nearest(site.net.embed(batch.images))
        count = int((shares >= LEAST).sum())
        return {USED: float(count), USED_SHARE: count / len(shares)}

    def diagnose(self, site: Site, batch: Batch) -> dict[str, float]:
        """How many virtual classes are used, and whether all kernels fit into the channels."""
        if not self.attracts:
            return {}
        head = cast(VirtualHead, site.net.head)
        kernels = len(head.virtual) + len(head.weight)
        return {**self.used(site, batch), ROOM: head.weight.shape[1] / kernels}

    def loss(self, site: Site, batch: Batch) -> Tensor:
        """Labels on the real classes, and the nearest virtual class among the virtual ones."""
        maps = site.net.embed(batch.images)
        virtual = None
        if self.attracts:
            real, virtual = cast(VirtualHead, site.net.head).both(maps)
        else:
            real = site.net.head(maps)
        loss = self._weighted(site.supervised)(real, batch.labels) + site.stand_ins(real, batch)
        if virtual is None:
            return loss
        return loss + self.virtual_weight * virtual_class_loss(virtual)

    def attention_maps(self, site: Site, images: Tensor) -> Mapping[str, Tensor]:
        """The number of the nearest virtual class at every place."""
        if not self.virtual_classes:
            return {}
        _, virtual = cast(VirtualHead, site.net.head).both(site.net.embed(images))
        return {"virtual classes": likeliest(virtual).float()}

    def _weighted(self, supervised: Loss) -> Loss:
        """The loss on the real classes: its cross entropy weighs more or less, else all of it."""
        if isinstance(supervised, Marginal):
            return replace(supervised, loss=self._weighted(supervised.loss))
        if isinstance(supervised, SegmentationLoss):
            return replace(supervised, entropy_weight=self.real_weight)
        return lambda logits, labels: self.real_weight * supervised(logits, labels)
