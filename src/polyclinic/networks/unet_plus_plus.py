"""U-Net++: the U-Net whose skip connections are nested U-Nets, 9 million parameters at width 32."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from polyclinic.networks.blocks import DoubleConv, DoubleConvEncoder, UpLevel, Width
from polyclinic.networks.classic_unet import relu
from polyclinic.networks.contract import Segmenter


class UNetPlusPlus(Segmenter):
    """U-Net++ with transposed convolutions, ReLU and a 1×1 head on its last and finest map."""

    name = "unet_plus_plus"
    divisor = 16

    def __init__(self, *, channels: int, classes: int, width: Width = 32) -> None:
        widths = tuple(width << level for level in range(5))
        super().__init__(
            channels=channels,
            classes=classes,
            encoder=DoubleConvEncoder(channels, widths, relu, (0.0,) * len(widths)),
            decoder=NestedDecoder(widths),
            head=nn.Conv2d(width, classes, kernel_size=1),
        )


class NestedDecoder(nn.Module):
    """A triangle of nodes: each column is one level shorter than the one before it.

    A node combines all maps before it in its row with the enlarged last map of the row below.
    """

    def __init__(self, widths: tuple[int, ...]) -> None:
        super().__init__()
        self.columns = nn.ModuleList(
            nn.ModuleList(
                Node(below, beside, before)
                for beside, below in pairwise(widths[: len(widths) - before + 1])
            )
            for before in range(1, len(widths))
        )

    def forward(self, features: list[Tensor]) -> list[Tensor]:
        """Give the last map of each row, coarsest first."""
        rows = [[each] for each in features]
        for column in self.columns:
            # From the finest row down: the row below has not yet got its map of this column.
            for level, node in enumerate(column.children()):
                rows[level].append(node(rows[level + 1][-1], torch.cat(rows[level], 1)))
        return [row[-1] for row in reversed(rows[:-1])]


class Node(UpLevel):
    """Enlarge and narrow the map below in one step and combine it with the row before."""

    def __init__(self, below: int, beside: int, before: int) -> None:
        super().__init__(beside, before * beside)
        self.enlarge = nn.ConvTranspose2d(below, beside, kernel_size=2, stride=2)
        self.combine = DoubleConv(before * beside, beside, relu, beside=beside)

    def enlarged(self, below: Tensor) -> Tensor:
        """Give the map below with the size and channels of the row's maps."""
        return self.enlarge(below)
