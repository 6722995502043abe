"""A 1×1 convolution of every second pixel."""

from __future__ import annotations

from torch import Tensor, nn


class Halving(nn.Conv2d):
    """A 1×1 convolution that halves height and width.

    It takes every second pixel first and convolves without a stride: oneDNN's own 1×1 convolution
    with a stride writes beyond its memory in the backward pass of narrow channels-last maps.
    """

    def __init__(self, inputs: int, outputs: int, *, bias: bool) -> None:
        super().__init__(inputs, outputs, kernel_size=1, bias=bias)

    def forward(self, maps: Tensor) -> Tensor:
        """Give a map of half the height and width."""
        return super().forward(maps[:, :, ::2, ::2])
