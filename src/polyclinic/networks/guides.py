"""Guides: maps of the decoder in the size of the image, for the trees of the tree energy."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn import functional

from polyclinic.networks.blocks import Norm


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
