"""ResNet-18 under a feature pyramid: 13 million parameters at a width of 64."""

from torch import Tensor, nn
from torch.nn import functional

from polyclinic.networks.blocks import Halving, Norm, Width
from polyclinic.networks.fpn import FPNSegmenter

LAYERS = range(1, 5)


class ResNetFPN(FPNSegmenter):
    """ResNet-18 with an FPN decoder and a 1×1 head."""

    name = "resnet_fpn"

    def __init__(self, *, channels: int, classes: int, width: Width = 64) -> None:
        super().__init__(ResNet(channels, width), channels=channels, classes=classes)


class ResNet(nn.Module):
    """Four layers of two residual blocks, with the names of public checkpoints."""

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.widths = tuple(width << layer for layer in range(4))
        self.conv1 = nn.Conv2d(channels, width, 7, stride=2, padding=3, bias=False)
        self.bn1 = Norm(width)
        for layer, inputs, outputs in zip(LAYERS, (width, *self.widths), self.widths, strict=False):
            blocks = (
                ResidualBlock(inputs, outputs, 1 if layer == 1 else 2),
                ResidualBlock(outputs, outputs, 1),
            )
            self.add_module(f"layer{layer}", nn.Sequential(*blocks))
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

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.bn1 = Norm(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = Norm(outputs)
        self.downsample: nn.Sequential | None = None
        if stride == 2:
            self.downsample = nn.Sequential(Halving(inputs, outputs, bias=False), Norm(outputs))

    def forward(self, maps: Tensor) -> Tensor:
        """Give a map of the same size, or of half of it where the stride is 2."""
        inner = functional.relu(self.bn1(self.conv1(maps)), inplace=True)
        beside = maps if self.downsample is None else self.downsample(maps)
        return functional.relu(self.bn2(self.conv2(inner)) + beside, inplace=True)


def _draw(module: nn.Module) -> None:
    if isinstance(module, nn.Conv2d):
        nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
