"""Weights of the classic U-Net that make it tell its own pixels: no training gives such weights.

The borders' zeros tell the four pixels of the deepest map apart, and every transposed convolution
tells apart the four pixels that it makes of one. So the finest map knows the bits of each pixel's
row and column, and a channel of the last block can be open at a single pixel, or in a square.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from polyclinic.federation.weights import Weights

LEVELS = 5  # of the network: images of 2⁵ pixels have 2 at the deepest one
SIDE = 2**LEVELS
EPSILON = 1e-5  # of a norm
MOMENTUM = 0.1  # of a norm: how much of a running statistic is the latest batch's
OPEN = 50.0  # how far above all others a channel's own pixel is, in deviations of the image
ABOVE = 8.0  # keeps the image above zero, where ReLU changes nothing
IMAGE, LAST = "encoder.levels.0", "decoder.levels.3.combine"

Square = tuple[int, int, int]  # first row and column, and the side, a power of two


def squares_of(square: Square) -> list[Square]:
    """Its four quarters."""
    row, column, side = square
    half = side // 2
    return [(row + down, column + right, half) for down in (0, half) for right in (0, half)]


def telling_pixels(first: Weights, pixels: Sequence[tuple[int, int]]) -> Weights:
    """Weights whose running statistics, after a batch, hold the image at these pixels."""
    tensors = _knowing_places(first)
    tensors[f"{IMAGE}.conv1.weight"][0, 0, 1, 1] = tensors[f"{IMAGE}.conv2.weight"][0, 0, 1, 1] = 1
    for norm in ("norm1", "norm2"):
        tensors[f"{IMAGE}.{norm}.weight"][0] = 1
        tensors[f"{IMAGE}.{norm}.bias"][0] = ABOVE
    for channel, (row, column) in enumerate(pixels):
        ones = _open(tensors, channel, (row, column, 1), OPEN)
        tensors[f"{LAST}.conv1.weight"][channel, 0, 1, 1] = 1
        # The channel's mean and deviation over an image are nearly known: bits are fair coins.
        mean, deviation = OPEN * (ones - LEVELS), (OPEN**2 * LEVELS / 2 + 1) ** 0.5
        tensors[f"{LAST}.norm1.weight"][channel] = 1
        tensors[f"{LAST}.norm1.bias"][channel] = (mean - OPEN * (ones - 0.5)) / deviation
        tensors[f"{LAST}.conv2.weight"][channel, channel, 1, 1] = 1
    return Weights.pack(tensors)


def told_pixels(sent: Weights, reply: dict[str, Tensor], count: int, batch: int) -> Tensor:
    """What came back, as normalised pixels; of a batch of several images their mean."""
    values = batch * SIDE**2

    def statistics(norm: str) -> tuple[Tensor, Tensor]:
        """The mean and the deviation by which the norm divided, of each channel."""
        means, variances = (
            (reply[f"weights/{norm}.{name}"].double() - (1 - MOMENTUM) * sent[f"{norm}.{name}"])
            / MOMENTUM
            for name in ("running_mean", "running_var")
        )
        return means, (variances * (values - 1) / values + EPSILON).sqrt()

    shown = statistics(f"{LAST}.norm2")[0][:count] * SIDE**2
    means, deviations = (each[:count] for each in statistics(f"{LAST}.norm1"))
    opened = (shown - sent[f"{LAST}.norm1.bias"][:count]) * deviations + means
    ones = (sent[f"{LAST}.conv1.weight"][:count] > 1).sum(dim=(1, 2, 3))
    pixels = opened - OPEN * ones
    for norm in ("norm2", "norm1"):
        means, deviations = statistics(f"{IMAGE}.{norm}")
        pixels = (pixels - ABOVE) * deviations[0] + means[0]
    return pixels


def foreground_in(first: Weights, square: Square) -> Weights:
    """Weights with which, of any image, the square is foreground and all else is background."""
    tensors = _knowing_places(first)
    ones = _open(tensors, 0, square, 1.0)
    tensors[f"{LAST}.conv1.bias"][0] = 0.5 - ones
    tensors[f"{LAST}.conv2.weight"][0, 0, 1, 1] = 1
    for norm in ("norm1", "norm2"):
        tensors[f"{LAST}.{norm}.weight"][0] = 1
    tensors["head.weight"][1, 0] = 4
    tensors["head.bias"][1] = -1
    return Weights.pack(tensors)


def _knowing_places(first: Weights) -> dict[str, Tensor]:
    """All zero, but that the finest map knows its places: channels 1 … 10 are the bits of them."""
    tensors = {name: torch.zeros_like(tensor) for name, tensor in first.items()}
    for name, tensor in tensors.items():
        if name.endswith("running_var"):
            tensor.fill_(1)
    deepest = f"encoder.levels.{LEVELS - 1}"
    _constant(tensors, f"{deepest}.norm1")
    _constant(tensors, f"{deepest}.norm2")
    tensors[f"{deepest}.conv2.weight"][1, 0, 0, 1] = 1  # nothing is above the first row
    tensors[f"{deepest}.conv2.weight"][2, 0, 1, 0] = 1  # nor left of the first column
    _bits(tensors, f"{deepest}.norm2", 2)
    for level in range(LEVELS - 1):
        known = 2 + 2 * level
        enlarge = tensors[f"decoder.levels.{level}.enlarge.weight"]
        for channel in range(known + 1):
            enlarge[channel, channel] = 1
        enlarge[0, known + 1, 1, :] = enlarge[0, known + 2, :, 1] = 1
        if level < LEVELS - 2:
            _passed_on(tensors, f"decoder.levels.{level}.combine", known + 2)
    return tensors


def _constant(tensors: dict[str, Tensor], norm: str) -> None:
    tensors[f"{norm}.bias"][0] = 1


def _bits(tensors: dict[str, Tensor], norm: str, count: int) -> None:
    """Channels 1 … count stay 0 and 1, whether the norm takes statistics of batches or its own."""
    bits = slice(1, count + 1)
    tensors[f"{norm}.running_mean"][bits] = tensors[f"{norm}.weight"][bits] = 0.5
    tensors[f"{norm}.running_var"][bits] = 0.25
    tensors[f"{norm}.bias"][bits] = 0.5


def _passed_on(tensors: dict[str, Tensor], block: str, count: int) -> None:
    beside = tensors[f"{block}.conv1.weight"].shape[1] // 2
    for channel in range(1, count + 1):
        tensors[f"{block}.conv1.weight"][channel, beside + channel, 1, 1] = 1
        tensors[f"{block}.conv2.weight"][channel, channel, 1, 1] = 1
    for norm in ("norm1", "norm2"):
        _constant(tensors, f"{block}.{norm}")
        _bits(tensors, f"{block}.{norm}", count)


def _open(tensors: dict[str, Tensor], channel: int, square: Square, height: float) -> int:
    """Let a channel of the last block be highest in the square; how many of its bits are 1."""
    row, column, side = square
    weights, ones = tensors[f"{LAST}.conv1.weight"], 0
    beside = weights.shape[1] // 2
    for level in range(LEVELS):
        if SIDE >> (level + 1) < side:
            break
        for place, number in enumerate((row, column)):
            bit = (number >> (LEVELS - 1 - level)) & 1
            weights[channel, beside + 1 + 2 * level + place, 1, 1] = height if bit else -height
            ones += bit
    return ones
