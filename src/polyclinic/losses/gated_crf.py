"""Gated CRF: neighbours that look alike should be predicted alike."""

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from polyclinic.losses.checks import (
    image_mistakes,
    map_mistakes,
    pixel_mistakes,
    positive_mistakes,
    refuse,
)
from polyclinic.losses.gated_crf_kernels import window_sums
from polyclinic.losses.host import accuracy, each_image, on_host


def gated_crf(
    probabilities: Tensor,
    image: Tensor,
    radius: int = 5,
    sigma_xy: float = 6.0,
    sigma_rgb: float = 0.1,
    mask: Tensor | None = None,
) -> Tensor:
    """Give the Potts energy of probabilities (N×K×H×W) on an image (N×C×H×W), per pixel.

    All pairs within a square of side 2·radius + 1 are weighted by exp(−½d²), where d is the
    distance of their positions over sigma_xy and of their colours over sigma_rgb together. As
    published, what lies beyond the image has position, colour and probability 0: a constant
    without gradient. With a mask (boolean N×H×W) only pairs of its pixels count, and the energy is
    per pixel of the mask. The gradient reaches the probabilities alone: the weights are constants.
    NaN probabilities give NaN; an image with NaN is refused.
    """
    refuse(
        "gated_crf",
        (
            *_mistakes(probabilities, image, mask, radius),
            *positive_mistakes(sigma_xy=sigma_xy, sigma_rgb=sigma_rgb),
        ),
    )
    precision = accuracy(probabilities, image)
    probabilities = probabilities.to(precision)
    colours = image.detach().to(precision) / (sigma_rgb * math.sqrt(2))
    if mask is None:
        chosen = torch.ones_like(colours[:, :1])
        beyond: Tensor | int = _beyond(colours, radius, sigma_xy)
    else:
        chosen = mask[:, None].to(precision)
        beyond = 0
    near = closeness(radius, sigma_xy).to(colours)
    energy = _Energy.apply(probabilities * chosen, chosen, colours, near)  # type: ignore[no-untyped-call]
    mean: Tensor = (energy + beyond) / chosen.sum().clamp(min=1)
    return mean


class _Energy(torch.autograd.Function):
    """Sum of weight · (chosen · chosen − values · values) over all ordered pairs of neighbours."""

    @staticmethod
    def forward(
        ctx: Any, values: Tensor, chosen: Tensor, colours: Tensor, closeness: Tensor
    ) -> Tensor:
        sums = _window_sums(colours, closeness, torch.cat([values, chosen], 1))
        ctx.save_for_backward(sums[:, :-1])
        energies = chosen * sums[:, -1:] - (values * sums[:, :-1]).sum(1, keepdim=True)
        return energies.sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        (sums,) = ctx.saved_tensors
        return sums * (-2 * gradients[0]), None, None, None


def _window_sums(colours: Tensor, closeness: Tensor, values: Tensor) -> Tensor:
    if colours.device.type != "cpu":
        return shifted_sums(colours, closeness, values)
    values = on_host(values)
    sums = torch.empty_like(values)
    windows = on_host(closeness).expand(len(values), -1, -1)
    each_image(window_sums, on_host(colours), windows, values, sums)
    return sums


def shifted_sums(colours: Tensor, closeness: Tensor, values: Tensor) -> Tensor:
    """Give what `window_sums` gives, for whole batches on any device, one shift after another."""
    radius = len(closeness) - 1
    height, width = values.shape[2:]
    sums = torch.zeros_like(values)
    for down in range(min(radius + 1, height)):
        for right in range(-radius if down else 1, radius + 1):
            if abs(right) < width:
                left, over = max(0, -right), max(0, right)
                near = (..., slice(height - down), slice(left, width - over))
                far = (..., slice(down, None), slice(over, width - left))
                squares = (colours[near] - colours[far]).square().sum(1, keepdim=True)
                weight = squares.neg().exp() * closeness[down, right + radius]
                sums[near] += weight * values[far]
                sums[far] += weight * values[near]
    return sums


def closeness(radius: int, sigma: float) -> Tensor:
    """Give the weights of the window's lower half: rows 0 to radius, columns −radius to radius."""
    offsets = torch.arange(-radius, radius + 1, dtype=torch.float64) / sigma
    squares = offsets.square()
    return torch.exp(-(squares[radius:, None] + squares) / 2)


def _beyond(colours: Tensor, radius: int, sigma: float) -> Tensor:
    """The weights of all pairs of a pixel and a neighbour beyond the image."""
    height, width = colours.shape[2:]
    rows, columns = (_axis(size, radius, sigma, colours) for size in (height, width))
    missing = (2 * radius + 1) ** 2 - rows[0][:, None] * columns[0]
    closeness = rows[1][:, None] * columns[1]
    return (missing * closeness * colours.square().sum(1).neg().exp()).sum()


def _axis(size: int, radius: int, sigma: float, like: Tensor) -> tuple[Tensor, Tensor]:
    """For each place on an axis: how much of its window is inside, and its closeness to place 0."""
    places = torch.arange(size, dtype=like.dtype, device=like.device)
    inside = places.clamp(max=radius) + (size - 1 - places).clamp(max=radius) + 1
    return inside, torch.exp(-(places / sigma).square() / 2)


def _mistakes(
    probabilities: Tensor, image: Tensor, mask: Tensor | None, radius: int
) -> Iterator[str]:
    yield from map_mistakes(probabilities=probabilities, image=image)
    yield from image_mistakes(image)
    if mask is not None:
        yield from pixel_mistakes("mask", mask, probabilities)
    if radius < 0:
        yield f"radius should be 0 or more, not {radius}"
