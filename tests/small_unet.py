"""The U-Net with two of its five levels, for tests in which the network only has to be one."""

from __future__ import annotations

from collections import ChainMap
from dataclasses import replace

from torch import Tensor, nn

from polyclinic.catalog import BUILT_IN
from polyclinic.networks import NETWORKS
from polyclinic.networks.blocks import DoubleConvEncoder, UpDecoder, Width
from polyclinic.networks.contract import Segmenter
from polyclinic.networks.unet import Dropout, UpBlock, leaky


class SmallUNet(Segmenter):
    """The blocks, parts and names of weights are the U-Net's; a third of its tensors."""

    name = "small_unet"
    divisor = 2

    def __init__(
        self,
        *,
        channels: int,
        classes: int,
        width: Width = 2,
        dropout: Dropout = (0.05, 0.1, 0.2, 0.3, 0.5),
    ) -> None:
        super().__init__(
            channels=channels,
            classes=classes,
            encoder=DoubleConvEncoder(channels, (width, 2 * width), leaky, dropout),
            decoder=UpDecoder([UpBlock(2 * width, width)]),
            head=nn.Conv2d(width, classes, kernel_size=3, padding=1),
        )


class PreciseUNet(SmallUNet):
    """The same in double precision, where rounding cannot hide a wrong formula."""

    name = "precise_unet"

    def __init__(self, *, channels: int, classes: int, width: Width = 2) -> None:
        super().__init__(channels=channels, classes=classes, width=width, dropout=(0.0,) * 5)
        self.double()

    def embed(self, images: Tensor) -> Tensor:
        return super().embed(images.double())


SMALL = {net.name: net for net in (SmallUNet, PreciseUNet)}
TABLES = replace(BUILT_IN, network=ChainMap(SMALL, NETWORKS))
