"""Changes of how training images look: blur, lost resolution, noise, contrast and gamma.

They follow the moves in this order. Everything is relative to an image's own range of values, so
it means the same whatever the normalisation.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from polyclinic.config import AugmentationSettings
from polyclinic.data.cases import Cases

STEPS = 256  # of a curve from an image's lowest value to its highest
LOW_BITS = 2**32 - 1


class Looks(NamedTuple):
    """How each of B images changes its look; tensors without elements where nothing does."""

    blurs: Tensor  # B float32: deviation of a Gaussian in pixels, 0 = none
    nodes: Tensor  # B int64: samples along a side that are left, 0 = all
    noises: Tensor  # B float32: deviation, as a share of the range
    seeds: Tensor  # B int64 below 2³²: of the noise
    curves: Tensor  # B×(STEPS + 1) float32: what values from the lowest to the highest become
    lows: Tensor  # B float32: the lowest value
    spans: Tensor  # B float32: from there to the highest


UNCHANGED = Looks(
    torch.empty(0),
    torch.empty(0, dtype=torch.long),
    torch.empty(0),
    torch.empty(0, dtype=torch.long),
    torch.empty(0, 0),
    torch.empty(0),
    torch.empty(0),
)


class Ranges(NamedTuple):
    """The values of N normalised images, each a tensor of N."""

    lowest: Tensor
    highest: Tensor
    mean: Tensor


def ranges_of(cases: Cases) -> Ranges:
    """What the images' values are once they are normalised."""
    pixels = cases.images.flatten(2)

    def joint(values: Tensor) -> Tensor:
        return ((values.float() - cases.offset) / cases.scale).cpu()

    return Ranges(
        joint(pixels.amin(2)).amin(1),
        joint(pixels.amax(2)).amax(1),
        joint(pixels.mean(2, dtype=torch.float32)).mean(1),
    )


def draw_looks(
    index: Tensor,
    ranges: Ranges,
    augmentation: AugmentationSettings,
    side: int,
    rng: torch.Generator,
) -> Looks:
    """Looks for the cases at `index`, `side` pixels wide: each change with probability ½."""
    # Always the same draws, so that switching one change off leaves the others as they were.
    draws = torch.rand(11, len(index), generator=rng)
    happens = draws[:5] < 0.5
    lows, highs, means = (each[index] for each in ranges)
    exponents = (1 + augmentation.gamma) ** ((draws[5] * 2 - 1) * happens[0])
    factors = 1 + (draws[6] * 2 - 1) * augmentation.contrast * happens[1]
    left = 1 - draws[9] * augmentation.low_resolution * happens[4]
    nodes = (left * side).round().clamp(min=1).long()
    return Looks(
        blurs=draws[8] * augmentation.blur * happens[3],
        nodes=torch.where(nodes < side, nodes, 0),
        noises=draws[7] * augmentation.noise * happens[2],
        seeds=(draws[10].double() * LOW_BITS).long(),
        curves=_curves(exponents, factors, lows, highs, means),
        lows=lows,
        spans=(highs - lows).clamp(min=1e-6),
    )


def _curves(
    exponents: Tensor, factors: Tensor, lows: Tensor, highs: Tensor, means: Tensor
) -> Tensor:
    """Contrast about the mean, clipped to the range, and then gamma."""
    shares = torch.linspace(0, 1, STEPS + 1)
    lows, spans, means = (each[:, None] for each in (lows, highs - lows, means))
    values = means + (lows + shares * spans - means) * factors[:, None]
    shares = ((values - lows) / spans.clamp(min=1e-6)).clamp(0, 1)
    return lows + shares ** exponents[:, None] * spans
