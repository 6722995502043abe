"""U-Net++: the U-Net whose skip connections are nested U-Nets, 9 million parameters at width 32."""

from itertools import pairwise

import torch
from torch import Tensor, nn

from polyclinic.networks.blocks import Width
from polyclinic.networks.classic_unet import ClassicUNet, UpBlock


class UNetPlusPlus(ClassicUNet):
    """U-Net++ with transposed convolutions, ReLU and a 1×1 head on its last and finest map."""

    name = "unet_plus_plus"
    divisor = 16

    def __init__(self, *, channels: int, classes: int, width: Width = 32) -> None:
        super().__init__(channels=channels, classes=classes, width=width)

    def decoder_of(self, widths: tuple[int, ...]) -> nn.Module:
        """Give the nested decoder."""
        return NestedDecoder(widths)


class NestedDecoder(nn.Module):
    """A triangle of nodes: each column is one level shorter than the one before it.

    A node combines all maps before it in its row with the enlarged last map of the row below.
    """

    def __init__(self, widths: tuple[int, ...]) -> None:
        super().__init__()
        self.columns = nn.ModuleList(
            nn.ModuleList(
                UpBlock(below, beside, before)
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
