"""ResNet under a feature pyramid: 13 million parameters at a depth of 18 and a width of 64."""

from typing import Literal

from torch import Tensor, nn
from torch.nn import functional

from polyclinic.networks.blocks import Halving, Norm, Width
from polyclinic.networks.fpn import FPNSegmenter

LAYERS = range(1, 5)
BLOCKS = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3)}  # of each layer, by depth

Depth = Literal[18, 34, 50]


class ResNetFPN(FPNSegmenter):
    """ResNet with an FPN decoder and a 1×1 head."""

    name = "resnet_fpn"

    def __init__(
        self, *, channels: int, classes: int, width: Width = 64, depth: Depth = 18
    ) -> None:
        super().__init__(ResNet(channels, width, depth), channels=channels, classes=classes)


class ResNet(nn.Module):
    """Four layers of residual blocks, with the names of public checkpoints."""

    def __init__(self, channels: int, width: int, depth: Depth = 18) -> None:
        super().__init__()
        block = Bottleneck if depth == 50 else ResidualBlock
        self.widths = tuple(block.growth * width << layer for layer in range(4))
        self.conv1 = nn.Conv2d(channels, width, 7, stride=2, padding=3, bias=False)
        self.bn1 = Norm(width)
        inputs = width
        for layer, outputs, count in zip(LAYERS, self.widths, BLOCKS[depth], strict=True):
            first = block(inputs, outputs, 1 if layer == 1 else 2)
            others = (block(outputs, outputs, 1) for _ in range(count - 1))
            self.add_module(f"layer{layer}", nn.Sequential(first, *others))
            inputs = outputs
        self.apply(_draw)

    def forward(self, images: Tensor) -> list[Tensor]:
        """Give one map per layer, finest first: a quarter to a thirty-second of the size."""
        below = functional.relu(self.bn1(self.conv1(images)), inplace=True)
        below = functional.max_pool2d(below, 3, stride=2, padding=1)
        maps: list[Tensor] = []
        for layer in LAYERS:
            below = self.get_submodule(f"layer{layer}")(below)
            maps.append(below)
        return maps


class ResidualBlock(nn.Module):
    """Two 3×3 convolutions with norms, added to their input or to a projection of it."""

    growth = 1

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.bn1 = Norm(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = Norm(outputs)
        self.downsample = _beside(inputs, outputs, stride)

    def forward(self, maps: Tensor) -> Tensor:
        """Give a map of the same size, or of half of it where the stride is 2."""
        inner = functional.relu(self.bn1(self.conv1(maps)), inplace=True)
        beside = maps if self.downsample is None else self.downsample(maps)
        return functional.relu(self.bn2(self.conv2(inner)) + beside, inplace=True)


class Bottleneck(nn.Module):
    """A 3×3 convolution between two of 1×1, on a quarter of the channels that it gives."""

    growth = 4

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        inner = outputs // self.growth
        self.conv1 = nn.Conv2d(inputs, inner, 1, bias=False)
        self.bn1 = Norm(inner)
        self.conv2 = nn.Conv2d(inner, inner, 3, stride, padding=1, bias=False)
        self.bn2 = Norm(inner)
        self.conv3 = nn.Conv2d(inner, outputs, 1, bias=False)
        self.bn3 = Norm(outputs)
        self.downsample = _beside(inputs, outputs, stride)

    def forward(self, maps: Tensor) -> Tensor:
        """Give a map of the same size, or of half of it where the stride is 2."""
        inner = functional.relu(self.bn1(self.conv1(maps)), inplace=True)
        inner = functional.relu(self.bn2(self.conv2(inner)), inplace=True)
        beside = maps if self.downsample is None else self.downsample(maps)
        return functional.relu(self.bn3(self.conv3(inner)) + beside, inplace=True)


def _beside(inputs: int, outputs: int, stride: int) -> nn.Sequential | None:
    """What brings a block's input to the shape of its output; None where it has that already."""
    if stride == 2:
        return nn.Sequential(Halving(inputs, outputs, bias=False), Norm(outputs))
    if inputs != outputs:
        return nn.Sequential(nn.Conv2d(inputs, outputs, 1, bias=False), Norm(outputs))
    return None


def _draw(module: nn.Module) -> None:
    if isinstance(module, nn.Conv2d):
        nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
