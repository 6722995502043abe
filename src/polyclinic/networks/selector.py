"""A small classifier that tells from which site an image is."""

from collections.abc import Mapping
from itertools import pairwise
from typing import cast

import torch
from torch import Tensor, nn

from polyclinic.networks.contract import Segmenter
from polyclinic.networks.personal_copy import WithPersonalCopy

SELECTOR = "selector"
LEVELS = 4
FIRST, SECOND, LEAST = 0.9, 0.999, 1e-8  # Adam's decay of its two moments, and its epsilon


class Selector(nn.Module):
    """Four strided convolutions and a linear layer, with the moments of Adam beside them.

    A site sees one class only, so steps are rare and the moments must be everybody's: they are
    buffers, and travel and are averaged with the weights.
    """

    def __init__(self, channels: int, sites: int, width: int) -> None:
        super().__init__()
        widths = [channels, *(width << level for level in range(LEVELS))]
        layers: list[nn.Module] = []
        for inputs, outputs in pairwise(widths):
            layers += [nn.Conv2d(inputs, outputs, 3, stride=2, padding=1), nn.ReLU()]
        self.layers = nn.Sequential(*layers)
        self.last = nn.Linear(widths[-1], sites)
        self.moments = nn.Module()
        for name, parameter in self._weights().items():
            for moment in ("first", "second"):
                self.moments.register_buffer(_slot(moment, name), torch.zeros_like(parameter))

    def forward(self, images: Tensor) -> Tensor:
        """Give logits (batch × sites)."""
        return cast(Tensor, self.last(self.layers(images).mean((2, 3))))

    @torch.no_grad()
    def step(self, gradients: Mapping[str, Tensor], rate: float, number: int) -> None:
        """Take the step with this number of Adam, down these gradients."""
        for name, parameter in self._weights().items():
            first = self.moments.get_buffer(_slot("first", name))
            second = self.moments.get_buffer(_slot("second", name))
            first.lerp_(gradients[name], 1 - FIRST)
            second.lerp_(gradients[name].square(), 1 - SECOND)
            spread = (second / (1 - SECOND**number)).sqrt_().add_(LEAST)
            parameter.sub_(rate / (1 - FIRST**number) * first / spread)

    def _weights(self) -> dict[str, nn.Parameter]:
        return dict(self.named_parameters())


class SuperSegmenter(WithPersonalCopy):
    """A network, a personal copy of it, and a selector of whose copy is right for an image."""

    def __init__(self, net: Segmenter, *, sites: int, width: int) -> None:
        super().__init__(net)
        self.selector = Selector(net.channels, sites, width)

    def chosen(self, images: Tensor, threshold: float) -> Tensor:
        """Give the number of each image's site, or −1 where its probability is not above."""
        best = self.selector(images).softmax(1).max(1)
        return torch.where(best.values > threshold, best.indices, -1)


def _slot(moment: str, name: str) -> str:
    return f"{moment}_{name.replace('.', '_')}"
