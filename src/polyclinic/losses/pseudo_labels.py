"""Pseudo labels from two predictions of the same images, mixed at random, for any method."""

from collections.abc import Iterator

import torch
from torch import Tensor

from polyclinic.losses.checks import map_mistakes, pixel_mistakes, refuse
from polyclinic.losses.supervised import soft_dice
from polyclinic.masks import UNLABELLED
from polyclinic.networks.contract import likeliest

LOW, HIGH = 0.7, 1.0  # the first prediction's share, drawn anew for each batch


def pseudo_dice(
    first: Tensor,
    second: Tensor,
    low: float = LOW,
    high: float = HIGH,
    rng: torch.Generator | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """Give the mean of both predictions' squared soft Dice losses against their `mixed_label`.

    With a mask (boolean N×H×W) only its pixels count.
    """
    label = mixed_label(first, second, low, high, rng)
    if mask is not None:
        refuse("pseudo_dice", pixel_mistakes("mask", mask, first))
        label = label.masked_fill(~mask, UNLABELLED)
    return (soft_dice(first, label) + soft_dice(second, label)) / 2


def mixed_label(
    first: Tensor,
    second: Tensor,
    low: float = LOW,
    high: float = HIGH,
    rng: torch.Generator | None = None,
) -> Tensor:
    """Give the likeliest classes (bytes, N×H×W) of a mixture of two predictions (N×K×H×W).

    The first one's share is drawn once for the batch, evenly between low and high, from the
    generator (torch's own where there is none). Every pixel gets a class; no gradient passes.
    """
    refuse("mixed_label", _mistakes(first, second, low, high))
    place = rng.device if rng else "cpu"
    share = torch.empty((), dtype=torch.float64, device=place).uniform_(low, high, generator=rng)
    mixture = torch.lerp(second.detach(), first.detach(), share.item())
    return likeliest(mixture)


def _mistakes(first: Tensor, second: Tensor, low: float, high: float) -> Iterator[str]:
    yield from map_mistakes(first=first, second=second)
    if first.shape[1:2] != second.shape[1:2]:
        yield "the two predictions differ in their number of classes"
    if not 0 <= low <= high <= 1:
        yield f"the share should satisfy 0 ≤ low ≤ high ≤ 1, not low {low} and high {high}"
