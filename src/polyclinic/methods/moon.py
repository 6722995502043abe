"""MOON: contrast with the last own model (Li et al., CVPR 2021, arXiv 2103.16257)."""

from dataclasses import dataclass
from functools import partial
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import cosine_similarity, softplus

from polyclinic.data.cases import Batch
from polyclinic.federation.method import Method
from polyclinic.federation.site import Site
from polyclinic.federation.weights import group
from polyclinic.networks.contract import Segmenter
from polyclinic.networks.parts import part

PREVIOUS = "previous"  # the encoder as the site trained it last


@dataclass(frozen=True)
class MOON(Method):
    """FedAvg whose sites draw their features to the received encoder's, away from their last one's.

    Features are the means of the deepest map over each image.
    """

    contrast: Annotated[float, Field(ge=0)] = 1.0
    """Weight of the contrast; 0 is FedAvg."""
    temperature: Annotated[float, Field(gt=0)] = 0.5
    """Divisor of the cosines in the contrast."""

    one_branch: ClassVar[bool] = True
    shared_memory: ClassVar[frozenset[str]] = frozenset({PREVIOUS})  # it was sent as well

    def train(self, site: Site) -> None:
        """Learn with the contrast, from the second visit on, and remember the encoder."""
        encoder = part(site.net, "encoder")
        last = group(site.memory, PREVIOUS)
        loss = self.loss
        if self.contrast and last:
            loss = partial(self.contrasted, site.twin({}), site.twin(last))
        site.fit(loss)
        if self.contrast:
            site.memory.update({f"{PREVIOUS}/{n}": t for n, t in site.take(encoder).items()})

    def contrasted(
        self, received: Segmenter, previous: Segmenter, site: Site, batch: Batch
    ) -> Tensor:
        """Labels, and features that are nearer to the received encoder's than to the last one's."""
        images = batch.images.to(memory_format=torch.channels_last)
        maps = site.net.encoder(images)
        logits = site.net.head(site.net.decoder(maps)[-1])
        plain = site.task_loss(logits, batch)
        with torch.no_grad():
            theirs, own = (pooled(net.encoder(images)) for net in (received, previous))
        term = contrast(pooled(maps), theirs, own, self.temperature)
        return plain + self.contrast * term


def pooled(maps: list[Tensor]) -> Tensor:
    """One vector for each image: the means of the deepest map (B×C)."""
    return maps[-1].float().mean(dim=(2, 3))


def contrast(features: Tensor, near: Tensor, far: Tensor, temperature: float) -> Tensor:
    """The mean of −log of the softmax of both cosines at the one that is to be near."""
    apart = cosine_similarity(features, far) - cosine_similarity(features, near)
    return softplus(apart / temperature).mean()
