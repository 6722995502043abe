"""A network whose deepest map passes a site's gate, with guides beside its decoder."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from polyclinic.networks.contract import Segmenter
from polyclinic.networks.guides import Guides, in_size_of
from polyclinic.networks.site_gate import Pooling, SiteGate, gated
from polyclinic.networks.widening import smallest_maps

STAGES = 3  # of the decoder that have a projected guide: the last ones


class Sight(NamedTuple):
    """What one pass through the network saw."""

    logits: Tensor
    maps: list[Tensor]  # of the decoder, coarsest first
    deepest: Tensor  # before the gate
    gates: Tensor | None


class GatedSegmenter(Segmenter):
    """Another network's encoder, decoder and head, with a site gate and guides where wanted."""

    def __init__(
        self, net: Segmenter, *, sites: int, pooling: Pooling | None, projected: bool
    ) -> None:
        super().__init__(**net.pieces())
        self.divisor = net.divisor
        self.name = net.name  # type: ignore[misc]  # errors should name what the study names
        features, maps = smallest_maps(net)
        deepest = features[-1].shape[1]
        self.gate = SiteGate(deepest, sites, pooling) if pooling else None
        widths = [each.shape[1] for each in maps[-STAGES:]]
        self.guides = Guides(widths, 2 * deepest, net.classes) if projected else None

    def forward(self, images: Tensor) -> Tensor:
        """Give logits (batch × classes × height × width)."""
        return self.look(images).logits

    def embed(self, images: Tensor) -> Tensor:
        """Give the decoder's last map."""
        return self.look(images).maps[-1]

    def look(self, images: Tensor) -> Sight:
        """Give the logits and what was seen on the way to them."""
        self.check(images)
        features = self.encoder(images.to(memory_format=torch.channels_last))
        deepest, gates = features[-1], None
        if self.gate is not None:
            gates = self.gate(deepest)
            features = [*features[:-1], gated(deepest, gates)]
        maps = self.decoder(features)
        return Sight(self.head(maps[-1]), maps, deepest, gates)

    def guide(self, images: Tensor, maps: list[Tensor]) -> list[Tensor]:
        """Give the guides in the size of the images: projected, or the maps but the last."""
        if self.guides is not None:
            return in_size_of(images, self.guides(maps[-STAGES:]))
        return in_size_of(images, maps[-STAGES:-1])
