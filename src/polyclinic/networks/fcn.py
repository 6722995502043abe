"""A fully convolutional network: VGG-16 whose three last levels are scored and added up."""

from itertools import chain

import torch
from torch import Tensor, nn

from polyclinic.networks.blocks import EnlargingHead, Norm, Width
from polyclinic.networks.contract import Segmenter

CONVOLUTIONS = (2, 2, 3, 3, 3)  # of each level
SCORED = 3  # levels


class FCN(Segmenter):
    """FCN-8s on VGG-16 with norms, without the two layers of 4096 channels, and a 1×1 head.

    Levels are scored in `width` channels rather than in classes, so that the head alone knows the
    classes.
    """

    name = "fcn"
    divisor = 32

    def __init__(self, *, channels: int, classes: int, width: Width = 64) -> None:
        widths = tuple(width * growth for growth in (1, 2, 4, 8, 8))
        super().__init__(
            channels=channels,
            classes=classes,
            encoder=VGG(channels, widths),
            decoder=ScoreDecoder(widths[-SCORED:], width),
            head=EnlargingHead(width, classes, 8),
        )


class VGG(nn.Module):
    """Levels of 3×3 convolutions that end in 2×2 max pooling, with the names of checkpoints."""

    def __init__(self, channels: int, widths: tuple[int, ...]) -> None:
        super().__init__()
        inputs = (channels, *widths)
        self.features = nn.Sequential(
            *chain.from_iterable(map(_level, inputs, widths, CONVOLUTIONS)),
        )

    def forward(self, images: Tensor) -> list[Tensor]:
        """Give one map per level, finest first: a half to a thirty-second of the size."""
        maps: list[Tensor] = []
        below = images
        for layer in self.features:
            below = layer(below)
            if isinstance(layer, nn.MaxPool2d):
                maps.append(below)
        return maps


class ScoreDecoder(nn.Module):
    """Scores of the last levels, each added to the enlarged scores of the level below."""

    def __init__(self, widths: tuple[int, ...], scores: int) -> None:
        super().__init__()
        self.deepest = nn.Conv2d(widths[-1], scores, kernel_size=1)
        self.levels = nn.ModuleList(ScoreLevel(width, scores) for width in widths[-2::-1])

    def forward(self, features: list[Tensor]) -> list[Tensor]:
        """Give one map per scored level, coarsest first."""
        maps = [self.deepest(features[-1])]
        for level, beside in zip(self.levels, reversed(features[-SCORED:-1]), strict=True):
            maps.append(level(maps[-1], beside))
        return maps


class ScoreLevel(nn.Module):
    """Enlarge the scores below, bilinearly at first, and add those of the map beside."""

    def __init__(self, beside: int, scores: int) -> None:
        super().__init__()
        self.enlarge = nn.ConvTranspose2d(scores, scores, 4, stride=2, padding=1, bias=False)
        self.score = nn.Conv2d(beside, scores, kernel_size=1)
        tent = torch.tensor([0.25, 0.75, 0.75, 0.25])
        with torch.no_grad():
            self.enlarge.weight.copy_(torch.eye(scores)[:, :, None, None] * torch.outer(tent, tent))

    def forward(self, below: Tensor, beside: Tensor) -> Tensor:
        """Give scores of the size of the map beside."""
        return self.enlarge(below) + self.score(beside)


def _level(inputs: int, outputs: int, convolutions: int) -> list[nn.Module]:
    layers: list[nn.Module] = []
    for each in (inputs, *[outputs] * (convolutions - 1)):
        conv = nn.Conv2d(each, outputs, kernel_size=3, padding=1)
        layers += [conv, Norm(outputs), nn.ReLU(inplace=True)]
    return [*layers, nn.MaxPool2d(2)]
