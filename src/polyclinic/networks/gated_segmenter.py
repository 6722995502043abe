"""A network whose deepest map passes a site's gate, with guides beside its decoder."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from polyclinic.networks.blocks import Norm
from polyclinic.networks.contract import Extended, Segmenter
from polyclinic.networks.widening import smallest_maps

Pooling = Literal["average+max", "average"]
REDUCTION, LEAST = 16, 4  # the bottleneck's share of the channels, and its width in small networks


class SiteGate(nn.Module):
    """A gate in 0…1 for each channel, from a site's one-hot code and the pooled map.

    "average+max" adds two branches of one bottleneck before the sigmoid, as published code does;
    "average" has one pooled map and one layer, as the paper says. The code of the site at work is a
    buffer of its own, which is private to the site.
    """

    code: Tensor

    def __init__(self, channels: int, sites: int, pooling: Pooling = "average+max") -> None:
        super().__init__()
        self.pooling = pooling
        self.embed = nn.Sequential(
            nn.Linear(sites, channels, bias=False),
            nn.ReLU(),
            nn.Linear(channels, channels, bias=False),
        )
        narrow = max(LEAST, channels // REDUCTION)
        self.weigh: nn.Module = nn.Linear(2 * channels, channels, bias=False)
        if pooling == "average+max":
            self.weigh = nn.Sequential(
                nn.Linear(2 * channels, narrow, bias=False),
                nn.ReLU(),
                nn.Linear(narrow, channels, bias=False),
            )
        self.register_buffer("code", torch.zeros(sites))

    def forward(self, maps: Tensor) -> Tensor:
        """Give the gates of the site at work (batch × channels) for maps of its images."""
        return self._gates(maps, self.code[None])[0]

    def of_others(self, maps: Tensor, *, learn: bool = False) -> Tensor:
        """Give the gates (sites − 1 × batch × channels) that every other code would have given.

        They are constants unless they shall learn.
        """
        codes = torch.eye(len(self.code), dtype=self.code.dtype, device=self.code.device)
        with torch.set_grad_enabled(learn and torch.is_grad_enabled()):
            return self._gates(maps, codes[self.code == 0])

    def _gates(self, maps: Tensor, codes: Tensor) -> Tensor:
        pooled = [maps.mean((2, 3))]
        if self.pooling == "average+max":
            pooled.append(maps.amax((2, 3)))
        # not len(maps): an exported graph would take it for a fixed number
        size = (len(codes), maps.shape[0], maps.shape[1])
        embedded = self.embed(codes)[:, None].expand(size)
        branches = [self.weigh(torch.cat((each.expand(size), embedded), 2)) for each in pooled]
        return torch.stack(branches).sum(0).sigmoid()


def gated(maps: Tensor, gates: Tensor) -> Tensor:
    """Give the maps with each channel raised by its gate: maps + maps · gate."""
    return maps + maps * gates[:, :, None, None]


class Guides(nn.Module):
    """One projection for each of some maps, to as many channels as there are classes."""

    def __init__(self, channels: Sequence[int], inner: int, classes: int) -> None:
        super().__init__()
        self.projections = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(each, inner, kernel_size=3, padding=1),
                Norm(inner),
                nn.ReLU(inplace=True),
                nn.Dropout2d(0.1),
                nn.Conv2d(inner, classes, kernel_size=1, bias=False),
            )
            for each in channels
        )

    def forward(self, maps: Sequence[Tensor]) -> list[Tensor]:
        """Give the projected maps, each in its own size."""
        return [project(each) for project, each in zip(self.projections, maps, strict=True)]


def in_size_of(image: Tensor, maps: Sequence[Tensor]) -> list[Tensor]:
    """Give the maps resampled to the height and width of an image."""
    size = image.shape[2:]
    return [functional.interpolate(each, size, mode="bilinear") for each in maps]


STAGES = 3  # of the decoder that have a projected guide: the last ones


class Sight(NamedTuple):
    """What one pass through the network saw."""

    logits: Tensor
    maps: list[Tensor]  # of the decoder, coarsest first
    deepest: Tensor  # before the gate
    gates: Tensor | None


class GatedSegmenter(Extended):
    """Another network's encoder, decoder and head, with a site gate and guides where wanted."""

    def __init__(
        self, net: Segmenter, *, sites: int, pooling: Pooling | None, projected: bool
    ) -> None:
        super().__init__(net)
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
        features = self.features(images)
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
