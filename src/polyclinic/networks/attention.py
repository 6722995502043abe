"""Attention between the places and between the channels of a map, each behind a gate at zero."""

from typing import Literal

import torch
from torch import Tensor, nn

from polyclinic.networks.blocks import Norm

Attention = Literal["dual", "spatial", "channel", "none"]
ChannelWeights = Literal["distance", "likeness"]


class DualAttention(nn.Module):
    """The sum of the attentions wanted, each added to the map itself; "none" gives the map."""

    def __init__(self, channels: int, kind: Attention, weights: ChannelWeights) -> None:
        super().__init__()
        both = kind == "dual"
        self.spatial = SpatialAttention(channels) if both or kind == "spatial" else None
        self.channel = ChannelAttention(weights) if both or kind == "channel" else None

    def forward(self, maps: Tensor) -> Tensor:
        """Give maps of the same shape."""
        attended = [each(maps) for each in (self.spatial, self.channel) if each is not None]
        return torch.stack(attended).sum(0) if attended else maps


class SpatialAttention(nn.Module):
    """Every place takes up the values of all places, by how its question meets their answers."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        narrow = max(1, channels // 8)
        self.question = _narrowing(channels, narrow, (1, 3))
        self.answer = _narrowing(channels, narrow, (3, 1))
        self.value = nn.Conv2d(channels, channels, kernel_size=1)
        self.strength = nn.Parameter(torch.zeros(1))

    def forward(self, maps: Tensor) -> Tensor:
        """Give maps of the same shape."""
        question, answer, value = (
            each(maps).flatten(2) for each in (self.question, self.answer, self.value)
        )
        weights = torch.einsum("bci,bcj->bij", question, answer).softmax(2)
        attended = torch.einsum("bcj,bij->bci", value, weights)
        return self.strength * attended.view_as(maps) + maps


class ChannelAttention(nn.Module):
    """Every channel takes up all channels, by how far from it they are, or by how like it.

    By "distance" the weights are a softmax of (largest product − product), as in the dual attention
    network and in published code; by "likeness" of the products themselves, as printed.
    """

    def __init__(self, weights: ChannelWeights) -> None:
        super().__init__()
        self.weights = weights
        self.strength = nn.Parameter(torch.zeros(1))

    def forward(self, maps: Tensor) -> Tensor:
        """Give maps of the same shape."""
        flat = maps.flatten(2)
        products = torch.einsum("bci,bdi->bcd", flat, flat)
        if self.weights == "distance":
            products = products.amax(2, keepdim=True) - products
        attended = torch.einsum("bcd,bdi->bci", products.softmax(2), flat)
        return self.strength * attended.view_as(maps) + maps


def _narrowing(inputs: int, outputs: int, kernel: tuple[int, int]) -> nn.Sequential:
    padding = (kernel[0] // 2, kernel[1] // 2)
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, padding=padding), Norm(outputs), nn.ReLU(inplace=True)
    )
