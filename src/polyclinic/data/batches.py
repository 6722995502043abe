"""Batches of cases: an endless stream of shuffles for training, plain order for prediction."""

from collections.abc import Iterator

import torch
from torch import Tensor

from polyclinic.config import AugmentationSettings
from polyclinic.data.augment import augmented, draw_moves, draw_tiles, normalised
from polyclinic.data.cases import Batch, Cases
from polyclinic.data.intensity import UNCHANGED, draw_looks, ranges_of


def steps_per_epoch(count: int, batch: int) -> int:
    """How many batches it takes to see `count` cases at least once."""
    return -(-count // batch)


def batches(
    cases: Cases,
    *,
    batch: int,
    steps: int,
    rng: torch.Generator,
    augmentation: AugmentationSettings,
    fill: float,
    tile: int = 0,
    device: torch.device | str = "cpu",
) -> Iterator[Batch]:
    """Exactly `steps` augmented batches, each of `batch` cases or all where there are fewer.

    Of every case a `tile` is seen that lies anywhere in it, or all where that is 0. Shuffles of the
    cases follow each other without a gap, so no batch is short; everything random comes from `rng`,
    which must be on the CPU.
    """
    if len(cases) == 0:
        raise ValueError("there are no cases to train on")
    size = min(batch, len(cases))
    side = cases.images.shape[-1]
    ranges = ranges_of(cases) if augmentation.changes_looks else None
    order = torch.empty(0, dtype=torch.long)
    for _ in range(steps):
        if len(order) < size:
            order = torch.cat((order, torch.randperm(len(cases), generator=rng)))
        index, order = order[:size], order[size:]
        moves = draw_moves(size, augmentation, rng)
        tiles = draw_tiles(size, side, tile, rng) if 0 < tile < side else None
        looks = UNCHANGED
        if ranges:
            looks = draw_looks(index, ranges, augmentation, tile or side, rng)
        yield augmented(cases, index, moves, fill, device, looks=looks, tiles=tiles)


def spread_out(cases: Cases, *, batch: int, device: torch.device | str = "cpu") -> Iterator[Batch]:
    """All cases once, normalised but not augmented, in batches of nearly one size up to `batch`.

    A batch's cases lie far apart, so that it is not made of one patient's neighbouring slices.
    """
    if len(cases) == 0:
        raise ValueError("there are no training cases to look at")
    count = steps_per_epoch(len(cases), batch)
    for first in range(count):
        yield normalised(cases, torch.arange(first, len(cases), count), device)


def in_order(cases: Cases, *, batch: int, device: torch.device | str = "cpu") -> Iterator[Batch]:
    """All cases once as they come, normalised but not augmented; the last batch may be short."""
    indices: tuple[Tensor, ...] = torch.arange(len(cases)).split(batch) if len(cases) else ()
    for index in indices:
        yield normalised(cases, index, device)
