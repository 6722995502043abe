"""The deep residual U-Net: 8.2 million parameters at a width of 64."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from polyclinic.networks.blocks import Halving, Norm, UpDecoder, UpLevel, Width
from polyclinic.networks.contract import Segmenter


class ResUNet(Segmenter):
    """U-Net of four levels made of residual units, without pooling, and a 1×1 head."""

    name = "res_unet"
    divisor = 8

    def __init__(self, *, channels: int, classes: int, width: Width = 64) -> None:
        widths = tuple(width << level for level in range(4))
        super().__init__(
            channels=channels,
            classes=classes,
            encoder=ResidualEncoder(channels, widths),
            decoder=UpDecoder([UpUnit(2 * beside, beside) for beside in widths[-2::-1]]),
            head=nn.Conv2d(width, classes, kernel_size=1),
        )


class ResidualEncoder(nn.Module):
    """Residual units of growing width; all but the first halve height and width."""

    def __init__(self, channels: int, widths: tuple[int, ...]) -> None:
        super().__init__()
        self.levels = nn.ModuleList(
            ResidualUnit(inputs, outputs, first=stride == 1, stride=stride)
            for inputs, outputs, stride in zip(
                (channels, *widths), widths, (1, 2, 2, 2), strict=False
            )
        )

    def forward(self, images: Tensor) -> list[Tensor]:
        """Give one map per level, finest first."""
        maps: list[Tensor] = []
        below = images
        for level in self.levels:
            below = level(below)
            maps.append(below)
        return maps


class ResidualUnit(nn.Module):
    """Twice norm, ReLU and 3×3 convolution, added to a projection of the input.

    The first unit of a network begins with the convolution, as images need neither of the others.
    """

    def __init__(self, inputs: int, outputs: int, *, first: bool = False, stride: int = 1) -> None:
        super().__init__()
        self.norm1 = None if first else Norm(inputs)
        self.conv1 = nn.Conv2d(inputs, outputs, kernel_size=3, stride=stride, padding=1)
        self.norm2 = Norm(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, kernel_size=3, padding=1)
        self.project = (
            nn.Conv2d(inputs, outputs, kernel_size=1)
            if stride == 1
            else Halving(inputs, outputs, bias=True)
        )

    def forward(self, maps: Tensor) -> Tensor:
        """Give a map of the same size, or of half of it where the stride is 2."""
        before = maps if self.norm1 is None else functional.relu(self.norm1(maps), inplace=True)
        inner = functional.relu(self.norm2(self.conv1(before)), inplace=True)
        return self.conv2(inner) + self.project(maps)


class UpUnit(UpLevel):
    """Enlarge the map below twofold and combine it with the map beside in a residual unit."""

    def __init__(self, below: int, beside: int) -> None:
        super().__init__(below, beside)
        self.combine = JoiningUnit(below + beside, beside)

    def enlarged(self, below: Tensor) -> Tensor:
        """Give the map below in the size of the one beside."""
        return functional.interpolate(below, scale_factor=2, mode="nearest")


class JoiningUnit(ResidualUnit):
    """A residual unit over two maps, one behind the other."""

    def forward(self, beside: Tensor, enlarged: Tensor) -> Tensor:  # type: ignore[override]
        """Give a map of the same size."""
        return super().forward(torch.cat((beside, enlarged), 1))
