"""The classic U-Net: 31 million parameters at a width of 64."""

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
            decoder=self.decoder_of(widths),
            head=nn.Conv2d(width, classes, kernel_size=1),
        )

    def decoder_of(self, widths: tuple[int, ...]) -> nn.Module:
        """Give the decoder for an encoder whose maps have these widths, finest first."""
        return UpDecoder([UpBlock(2 * beside, beside) for beside in widths[-2::-1]])


class UpBlock(UpLevel):
    """Enlarge and narrow the map below in one step and combine it with the maps beside."""

    def __init__(self, below: int, beside: int, before: int = 1) -> None:
        super().__init__(beside, before * beside)
        self.enlarge = nn.ConvTranspose2d(below, beside, kernel_size=2, stride=2)
        self.combine = DoubleConv(before * beside, beside, relu, beside=beside)

    def enlarged(self, below: Tensor) -> Tensor:
        """Give the map below with the size and channels of the one beside."""
        return self.enlarge(below)
