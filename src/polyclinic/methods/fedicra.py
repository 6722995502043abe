"""FedICRA: gated and blended models for weak labels (Lin et al., MLMI 2023, arXiv 2304.05635)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal, cast

from pydantic import Field
from torch import Tensor

from polyclinic.data.cases import Batch
from polyclinic.federation.method import plain_loss
from polyclinic.federation.site import Site
from polyclinic.losses import Window, gated_crf, tree_energy
from polyclinic.masks import UNLABELLED
from polyclinic.methods.learned_mixing import BlendingMethod, Mixing, receive_mixed
from polyclinic.methods.site_contrast import CODE, own_code, site_contrast
from polyclinic.networks.contract import Segmenter
from polyclinic.networks.gated_segmenter import GatedSegmenter, Sight
from polyclinic.networks.parts import Names, everything, parameters, part
from polyclinic.runs import SiteInfo

Weight = Annotated[float, Field(ge=0)]


@dataclass(frozen=True)
class FedICRA(BlendingMethod):
    """FedAvg with a site's gate at the bottleneck, blended decoders and losses for weak labels.

    Tree energy and gated CRF stand in for labels that are not there: a site with full masks trains
    without them.
    """

    adaptive_aggregation: bool = True
    """Blend the decoder (AA)."""
    mixing: Mixing = field(default_factory=lambda: Mixing(share_of_images=1.0))
    """How the blend is learned."""
    site_gate: Literal["average+max", "average", "none"] = "average+max"
    """Pooling in front of the site gate (SCR); `none` is without a gate."""
    contrast: Weight = 1.0
    """Weight of the contrast between the sites' gates."""
    distance: Literal["squared", "absolute"] = "squared"
    """Distance in the contrast."""
    tree: Weight = 0.1
    """Weight of the tree energy; 0 is without it and without guides."""
    guides: Literal["projected", "features"] = "projected"
    """What the trees are built on: projections of decoder maps, or the maps themselves."""
    crf: Weight = 0.1
    """Weight of the gated CRF; 0 is without it."""
    crf_window: Window = field(default_factory=Window)
    """How far the gated CRF looks."""

    def adapt(self, net: Segmenter, sites: tuple[SiteInfo, ...]) -> Segmenter:
        """The network with a gate at its deepest map and guides beside its decoder."""
        return GatedSegmenter(
            net,
            sites=len(sites),
            pooling=None if self.site_gate == "none" else self.site_gate,
            projected=self.tree > 0 and self.guides == "projected",
        )

    def shares(self, net: Segmenter) -> Names:
        """All but the site's code."""
        return everything(net) - {CODE}

    def predicts_with(self, net: Segmenter) -> Names:
        """All but the guides."""
        return everything(net) - net.parts().get("guides", frozenset())

    def blended(self, net: Segmenter) -> Names:
        """Decoder and head."""
        return (part(net, "decoder") | part(net, "head")) & parameters(net)

    def receive(self, site: Site) -> None:
        """Take up the weights received, blending the decoder with the site's own."""
        if self.site_gate != "none":
            site.load(own_code(site))
        loss = self.loss if self.mixing_loss == "full" else plain_loss
        mixing = self.mixing if self.adaptive_aggregation else None
        receive_mixed(site, self.blended(site.net), loss, mixing)

    def loss(self, site: Site, batch: Batch) -> Tensor:
        """Labels, tree energy, gated CRF and the contrast between the sites' gates."""
        net = cast(GatedSegmenter, site.net)
        seen = net.look(batch.images)
        loss = site.supervised(seen.logits, batch.labels)
        if site.info.kind != "mask":
            loss = loss + self._without_labels(net, seen, batch)
        if self.contrast and net.gate is not None and seen.gates is not None:
            others = net.gate.of_others(seen.deepest)
            loss = loss + self.contrast * site_contrast(seen.gates, others, self.distance)
        return loss

    def _without_labels(self, net: GatedSegmenter, seen: Sight, batch: Batch) -> Tensor:
        probabilities = seen.logits.softmax(1)
        loss = probabilities.new_zeros(())
        if self.tree:
            guides = net.guide(batch.images, seen.maps)
            unlabelled = batch.labels == UNLABELLED
            if batch.view is not None:
                unlabelled &= batch.view
            energy = tree_energy(probabilities, batch.images, guides, unlabelled)
            loss = loss + self.tree * energy
        if self.crf:
            energy = gated_crf(
                probabilities, batch.images, **vars(self.crf_window), mask=batch.view
            )
            loss = loss + self.crf * energy
        return loss
