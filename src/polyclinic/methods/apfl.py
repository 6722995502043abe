"""APFL: a learned mixture of shared and personal model (Deng et al., 2020, arXiv 2003.13461)."""

from dataclasses import dataclass
from typing import Annotated, cast

import torch
from pydantic import Field
from torch import Tensor

from polyclinic.data.cases import Batch
from polyclinic.federation.method import Method
from polyclinic.federation.optimizing import learning_rate
from polyclinic.federation.site import Parameters, Site
from polyclinic.networks.contract import Segmenter
from polyclinic.networks.parts import Names, everything, under
from polyclinic.networks.personal_copy import ALPHA, COPY, MixedSegmenter, Mixing
from polyclinic.runs import SiteInfo


@dataclass(frozen=True)
class APFL(Method):
    """FedAvg, and beside it a personal model that learns so that a mixture of both is right."""

    mixing: Mixing = "outputs"
    """What is mixed: the models' outputs (logits) or their weights."""
    alpha: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Share of the personal model in the mixture at the start, 0 to 1; 0 predicts as FedAvg."""
    adaptive: bool = True
    """Let each site learn its share, one step a round; otherwise it stays `alpha`."""
    alpha_rate: Annotated[float, Field(gt=0)] = 1.0
    """Learning rate of the share over that of the round."""
    alpha_decay: Annotated[float, Field(ge=0)] = 0.0
    """Weight decay of the share; 0 is none."""

    def adapt(self, net: Segmenter, sites: tuple[SiteInfo, ...]) -> Segmenter:  # noqa: ARG002
        """The network with a personal copy."""
        return MixedSegmenter(net, mixing=self.mixing, alpha=self.alpha)

    def shares(self, net: Segmenter) -> Names:
        """All but the personal copy and its weight in the mixture."""
        return everything(net) - under(net, COPY) - {ALPHA}

    def train(self, site: Site) -> None:
        """Train both models on the same batches, the personal one as a part of the mixture."""
        net = cast(MixedSegmenter, site.net)
        alpha = net.alpha.clone().requires_grad_(self.adaptive)

        def loss(site: Site, batch: Batch) -> Tensor:
            return self.both_losses(site, batch, alpha)

        def learn(parameters: Parameters) -> None:  # noqa: ARG001
            if alpha.grad is not None:
                site.load({ALPHA: self.stepped(site, alpha)})
                alpha.requires_grad_(False).copy_(net.alpha)
                alpha.grad = None

        site.fit(loss, hook=learn)

    def both_losses(self, site: Site, batch: Batch, alpha: Tensor) -> Tensor:
        """The loss of the shared model and that of the mixture; the models' gradients are apart."""
        net = cast(MixedSegmenter, site.net)
        if not alpha.requires_grad and not alpha:  # nothing of the personal model is in the mixture
            shared = net.shared_logits(batch.images)
            return site.task_loss(shared, batch)
        shared, mixed = net.both(batch.images, alpha)
        return site.task_loss(shared, batch) + site.task_loss(mixed, batch)

    def stepped(self, site: Site, alpha: Tensor) -> Tensor:
        """The weight of the personal model one step down its gradient, within 0 and 1."""
        assert alpha.grad is not None
        rate = self.alpha_rate * learning_rate(site.training, (site.round - 1) / site.rounds)
        with torch.no_grad():
            return (alpha - rate * (alpha.grad + self.alpha_decay * alpha)).clamp(0, 1)
