"""The classic U-Net: 31 million parameters at a width of 64."""

from __future__ import annotations

from functools import partial

from torch import Tensor, nn

from polyclinic.networks.blocks import DoubleConv, DoubleConvEncoder, UpDecoder, UpLevel, Width
from polyclinic.networks.contract import Segmenter

relu = partial(nn.ReLU, inplace=True)


class ClassicUNet(Segmenter):
    """U-Net with transposed convolutions, ReLU, no dropout and a 1×1 head."""

    name = "classic_unet"
    divisor = 16

    def __init__(self, *, channels: int, classes: int, width: Width = 64) -> None:
        widths = tuple(width << level for level in range(5))
        super().__init__(
            channels=channels,
            classes=classes,
            encoder=DoubleConvEncoder(channels, widths, relu, (0.0,) * len(widths)),
            decoder=UpDecoder([UpBlock(2 * beside, beside) for beside in widths[-2::-1]]),
            head=nn.Conv2d(width, classes, kernel_size=1),
        )


class UpBlock(UpLevel):
    """Enlarge and narrow the map below in one step and combine it with the map beside."""

    def __init__(self, below: int, beside: int) -> None:
        super().__init__(beside, beside)
        self.enlarge = nn.ConvTranspose2d(below, beside, kernel_size=2, stride=2)
        self.combine = DoubleConv(beside, beside, relu, beside=beside)

    def enlarged(self, below: Tensor) -> Tensor:
        """Give the map below with the size and channels of the one beside."""
        return self.enlarge(below)
