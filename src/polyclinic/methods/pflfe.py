"""pFLFE: private decoders over an enhanced encoder (Xie et al., MICCAI 2024, arXiv 2407.00462)."""

from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar

from pydantic import Field

from polyclinic.data.cases import Batch
from polyclinic.data.random_views import Views
from polyclinic.federation.message import Message
from polyclinic.federation.method import Method, Stage
from polyclinic.federation.site import Site
from polyclinic.methods.enhancement import (
    PROJECTOR,
    SPREADS,
    Enhancement,
    enhance,
    enhanced,
    projector,
    spread,
)
from polyclinic.networks.contract import Segmenter
from polyclinic.networks.parts import Names, everything, part, under
from polyclinic.networks.widening import smallest_maps
from polyclinic.runs import SiteInfo

PRIVATE = ("decoder", "head")


@dataclass(frozen=True)
class PFLFE(Method):
    """A shared encoder under private decoders: enhanced, averaged, trained and averaged again."""

    enhancement: Enhancement = field(default_factory=Enhancement)
    """The enhancement of the encoder."""
    views: Views = field(default_factory=Views)
    """How the views of an image differ."""
    private_layers: Annotated[int, Field(ge=1)] | None = None
    """Number of last layers that are private; by default all of decoder and head."""

    paper_weighting: ClassVar[str] = "uniform"
    title: ClassVar[str] = "pFLFE"

    def adapt(self, net: Segmenter, sites: tuple[SiteInfo, ...]) -> Segmenter:  # noqa: ARG002
        """The network with a projector beside its decoder."""
        if self.enhancement.share:
            features, _ = smallest_maps(net)
            net.add_module(PROJECTOR, projector(features[-1].shape[1], self.enhancement))
        return net

    def shares(self, net: Segmenter) -> Names:
        """All but the last layers and the projector."""
        return everything(net) - self.private(net)

    def private(self, net: Segmenter) -> Names:
        """Decoder and head, or their last layers, and the projector."""
        if self.private_layers:
            return self._projector(net) | last_layers(net, self.private_layers)
        return self._projector(net).union(*(part(net, name) for name in PRIVATE))

    def predicts_with(self, net: Segmenter) -> Names:
        """All but the projector."""
        return everything(net) - self._projector(net)

    def each_round(self) -> tuple[Stage, ...]:
        """Enhancement and supervised learning, with an average after each."""
        fit = Stage("fit", self.message, self.visit, self.combine)
        if not self.enhancement.share:
            return (fit,)
        return (Stage("enhance", self.message, self.visit_to_enhance, self.combine), fit)

    def visit_to_enhance(self, site: Site) -> Message:
        """A site's part of the first half of a round; its reply tells the embeddings' spread."""
        self.receive(site)
        numbers = enhance(site, self.enhancement, self.views)
        return replace(self.send(site), numbers=numbers)

    def diagnose(self, site: Site, batch: Batch) -> dict[str, float]:
        """What the enhancement moved, and how unlike images look to the encoder."""
        if not self.enhancement.share:
            return {}
        deepest = site.net.encoder(batch.images)[-1].mean((2, 3))
        alone = len(deepest) < 2
        return enhanced(site) | ({} if alone else {SPREADS[1]: spread(deepest)})

    def _projector(self, net: Segmenter) -> Names:
        return part(net, PROJECTOR) if self.enhancement.share else frozenset()


@dataclass(frozen=True)
class FCPFLFE(PFLFE):
    """pFLFE with one average a round: enhanced and trained at once ("fast converging")."""

    title: ClassVar[str] = "FC-pFLFE"

    def each_round(self) -> tuple[Stage, ...]:
        """Everything in one exchange."""
        return (Stage("fit", self.message, self.visit, self.combine),)

    def visit(self, site: Site) -> Message:
        """Enhancement, then supervised learning."""
        if not self.enhancement.share:
            return super().visit(site)
        enhanced = self.visit_to_enhance(site)
        self.train(site)
        return replace(self.send(site), numbers=enhanced.numbers)


def last_layers(net: Segmenter, count: int) -> Names:
    """The weights of the last so many layers of decoder and head, norms counted as layers."""
    layers = [
        path
        for path, module in net.named_modules()
        if path.partition(".")[0] in PRIVATE
        and next(module.parameters(recurse=False), None) is not None
    ]
    return under(net, *layers[-count:])
