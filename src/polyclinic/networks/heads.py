"""The head of networks whose decoder ends below the size of the images."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional


class EnlargingHead(nn.Module):
    """A 1×1 convolution to the classes, whose logits are enlarged bilinearly by a factor."""

    def __init__(self, channels: int, classes: int, factor: int) -> None:
        super().__init__()
        self.score = nn.Conv2d(channels, classes, kernel_size=1)
        self.factor = factor

    def forward(self, maps: Tensor) -> Tensor:
        """Give logits of the images' size."""
        return functional.interpolate(
            self.score(maps), scale_factor=self.factor, mode="bilinear", align_corners=False
        )
