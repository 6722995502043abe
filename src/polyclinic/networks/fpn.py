"""The decoder of a feature pyramid: from the deepest map up, all levels added at the finest."""

from collections.abc import Sequence
from typing import cast

from torch import Tensor, nn
from torch.nn import functional

from polyclinic.networks.blocks import EnlargingHead
from polyclinic.networks.contract import Segmenter

PYRAMID, BRANCH = 256, 128  # channels of the pyramid's maps and of the map they end in
GROUPS = 32


class FPNSegmenter(Segmenter):
    """An encoder of four levels (with their `widths`) under an FPN decoder and a 1×1 head."""

    divisor = 32

    def __init__(self, encoder: nn.Module, *, channels: int, classes: int) -> None:
        super().__init__(
            channels=channels,
            classes=classes,
            encoder=encoder,
            decoder=FPNDecoder(cast(Sequence[int], encoder.widths)),
            head=EnlargingHead(BRANCH, classes, 4),
        )


class FPNDecoder(nn.Module):
    """A pyramid over the encoder's maps, whose levels are refined, enlarged and added up."""

    def __init__(self, widths: Sequence[int]) -> None:
        super().__init__()
        self.deepest = nn.Conv2d(widths[-1], PYRAMID, kernel_size=1)
        self.levels = nn.ModuleList(TopDown(width) for width in widths[-2::-1])
        self.branches = nn.ModuleList(_branch(number) for number in range(len(widths))[::-1])
        self.dropout = nn.Dropout2d(0.2)

    def forward(self, features: list[Tensor]) -> list[Tensor]:
        """Give the maps of the pyramid, coarsest first, and at last their sum."""
        maps = [self.deepest(features[-1])]
        for level, beside in zip(self.levels, reversed(features[:-1]), strict=True):
            maps.append(level(maps[-1], beside))
        merged, *others = (branch(each) for branch, each in zip(self.branches, maps, strict=True))
        for each in others:
            merged = merged + each
        return [*maps, self.dropout(merged)]


class TopDown(nn.Module):
    """Enlarge the map below twofold and add it to the encoder's map beside it.

    An attention, where one is set, takes the enlarged map and the one it is added to, of `widths`
    channels in this order; what it gives takes the place of the enlarged map.
    """

    attention: nn.Module | None

    def __init__(self, beside: int) -> None:
        super().__init__()
        self.lateral = nn.Conv2d(beside, PYRAMID, kernel_size=1)
        self.attention = None
        self.widths = (PYRAMID, PYRAMID)

    def forward(self, below: Tensor, beside: Tensor) -> Tensor:
        """Give a map of the size of the one beside."""
        enlarged = functional.interpolate(below, scale_factor=2, mode="nearest")
        lateral = self.lateral(beside)
        if self.attention is not None:
            enlarged = self.attention(enlarged, lateral)
        return enlarged + lateral


class Refine(nn.Module):
    """3×3 convolution, norm over groups of channels and ReLU, then twofold enlargement if asked."""

    def __init__(self, inputs: int, *, enlarge: bool) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, BRANCH, kernel_size=3, padding=1, bias=False)
        self.norm = nn.GroupNorm(GROUPS, BRANCH)
        self.enlarge = enlarge

    def forward(self, maps: Tensor) -> Tensor:
        """Give a map of the same size, or of twice its height and width."""
        refined = functional.relu(self.norm(self.conv(maps)), inplace=True)
        if not self.enlarge:
            return refined
        return functional.interpolate(refined, scale_factor=2, mode="bilinear", align_corners=True)


def _branch(enlargements: int) -> nn.Sequential:
    inputs = (PYRAMID, *(BRANCH for _ in range(enlargements - 1)))
    return nn.Sequential(*(Refine(each, enlarge=enlargements > 0) for each in inputs))
