"""The papers' U-Net: 1.8 million parameters at a width of 16."""

from functools import partial
from typing import Annotated

from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from polyclinic.networks.blocks import DoubleConv, DoubleConvEncoder, UpDecoder, UpLevel, Width
from polyclinic.networks.contract import Segmenter

Probability = Annotated[float, Field(ge=0, lt=1)]
Dropout = tuple[Probability, Probability, Probability, Probability, Probability]

# Legal in place: a norm's gradient needs its input, never its output.
leaky = partial(nn.LeakyReLU, negative_slope=0.01, inplace=True)


class UNet(Segmenter):
    """U-Net with bilinear upsampling, leaky activations, dropout and a 3×3 head."""

    name = "unet"
    divisor = 16

    def __init__(
        self,
        *,
        channels: int,
        classes: int,
        width: Width = 16,
        dropout: Dropout = (0.05, 0.1, 0.2, 0.3, 0.5),
    ) -> None:
        widths = tuple(width << level for level in range(5))
        super().__init__(
            channels=channels,
            classes=classes,
            encoder=DoubleConvEncoder(channels, widths, leaky, dropout),
            decoder=UpDecoder([UpBlock(2 * beside, beside) for beside in widths[-2::-1]]),
            head=nn.Conv2d(width, classes, kernel_size=3, padding=1),
        )


class UpBlock(UpLevel):
    """Narrow the map below, enlarge it twofold and combine it with the map beside."""

    def __init__(self, below: int, beside: int) -> None:
        super().__init__(beside, beside)
        self.narrow = nn.Conv2d(below, beside, kernel_size=1)
        self.combine = DoubleConv(beside, beside, leaky, beside=beside)

    def enlarged(self, below: Tensor) -> Tensor:
        """Give the map below with the size and channels of the one beside."""
        return functional.interpolate(
            self.narrow(below), scale_factor=2, mode="bilinear", align_corners=True
        )
