"""FedICRA: gated and blended models for weak labels (Lin et al., MLMI 2023, arXiv 2304.05635)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal, cast

from pydantic import Field
from torch import Tensor

from polyclinic.data.cases import Batch
from polyclinic.federation.site import Site
from polyclinic.methods.learned_mixing import BlendingMethod, Mixing
from polyclinic.methods.site_contrast import CODE, code, gate_notes, site_contrast
from polyclinic.networks.contract import Segmenter
from polyclinic.networks.gated_segmenter import GatedSegmenter
from polyclinic.networks.parts import Names, everything, parameters, part
from polyclinic.runs import SiteInfo

Weight = Annotated[float, Field(ge=0)]


@dataclass(frozen=True)
class FedICRA(BlendingMethod):
    """FedAvg with a site's gate at the bottleneck, blended decoders and losses for weak labels.

    Its tree energy and gated CRF are terms of `training.weak`, on unless a study sets them to 0.
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
    margin: Annotated[float, Field(ge=0, le=1)] = 0.1
    """Distance to another site's gates beyond which the contrast pushes no further; 1 is never."""
    moves: Literal["own", "both"] = "own"
    """Gates that the contrast moves: the site's own (released), or those of the others besides."""
    guides: Literal["features", "projected"] = "features"
    """What further trees are built on: decoder maps, or projections of them as released."""

    def weak_terms(self) -> Mapping[str, float]:
        """Tree energy and gated CRF, with the published weights."""
        return {"tree": 0.1, "crf": 0.1}

    def adapt(self, net: Segmenter, sites: tuple[SiteInfo, ...]) -> Segmenter:
        """The network with a gate at its deepest map and guides beside its decoder."""
        return GatedSegmenter(
            net,
            sites=len(sites),
            pooling=None if self.site_gate == "none" else self.site_gate,
            projected=self.guides == "projected",
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
            site.load(code(site))
        self.receive_blended(site, self.mixing if self.adaptive_aggregation else None)

    def diagnose(self, site: Site, batch: Batch) -> dict[str, float]:
        """W, what became of the gates, and what another site's code would change."""
        return super().diagnose(site, batch) | gate_notes(site, batch)

    def loss(self, site: Site, batch: Batch) -> Tensor:
        """The task's loss, and the contrast between the sites' gates."""
        net = cast(GatedSegmenter, site.net)
        seen = net.look(batch.images)
        trees = site.training.weak.tree and site.info.kind != "mask"
        guides = net.guide(batch.images, seen.maps) if trees else ()
        loss = site.task_loss(seen.logits, batch, guides=guides)
        if self.contrast and net.gate is not None and seen.gates is not None:
            others = net.gate.of_others(seen.deepest, learn=self.moves == "both")
            apart = site_contrast(seen.gates, others, self.distance, self.margin)
            loss = loss + self.contrast * apart
        return loss
