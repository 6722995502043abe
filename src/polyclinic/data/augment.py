"""Moves, tiles and other looks of a whole batch, normalised on the way."""

from dataclasses import dataclass

import torch
from torch import Tensor

from polyclinic.config import AugmentationSettings
from polyclinic.data.augment_kernels import move
from polyclinic.data.cases import Batch, Cases
from polyclinic.data.intensity import UNCHANGED, Looks
from polyclinic.data.intensity_kernels import alteration
from polyclinic.masks import UNLABELLED


@dataclass(frozen=True)
class Moves:
    """What happens to each of B images, in this order."""

    upside_down: Tensor  # B bool: rows in reverse
    mirrored: Tensor  # B bool: columns in reverse
    turns: Tensor  # B int64: counter-clockwise quarter turns
    degrees: Tensor  # B float32: counter-clockwise rotation, 0 = no resampling


def draw_moves(count: int, augmentation: AugmentationSettings, rng: torch.Generator) -> Moves:
    """Moves for `count` images: each flip and the rotation with probability ½, 0–3 turns."""
    # Always the same draws, so that switching one move off leaves the others as they were.
    draws = torch.rand(5, count, generator=rng)
    return Moves(
        upside_down=(draws[0] < 0.5) & augmentation.flips,
        mirrored=(draws[1] < 0.5) & augmentation.flips,
        turns=(draws[2] * 4).long() * augmentation.quarter_turns,
        degrees=(draws[3] < 0.5) * (draws[4] * 2 - 1) * augmentation.rotation,
    )


@dataclass(frozen=True)
class Tiles:
    """The parts that are taken of B images, `high` × `wide` pixels."""

    starts: Tensor  # B×2 int64: the first row and column
    high: int
    wide: int

    @property
    def centres(self) -> Tensor:
        """B×2 float32: the middles of the tiles, columns before rows."""
        half = torch.tensor([(self.wide - 1) / 2, (self.high - 1) / 2])
        return self.starts.flip(1).float() + half


def draw_tiles(count: int, side: int, tile: int, rng: torch.Generator) -> Tiles:
    """A tile anywhere in each of `count` square images."""
    starts = torch.randint(side - tile + 1, (count, 2), generator=rng)
    return Tiles(starts, tile, tile)


def normalised(cases: Cases, index: Tensor, device: torch.device | str = "cpu") -> Batch:
    """The cases at `index` on `device`, images normalised and channels-last, nothing moved."""
    offset, scale = (each[index][:, :, None, None] for each in (cases.offset, cases.scale))
    images = cases.images[index].float().sub_(offset).div_(scale)
    view = None if cases.views is None else cases.views[index].to(device)
    images = images.to(device).contiguous(memory_format=torch.channels_last)
    return Batch(images, cases.labels[index].to(device), view)


def augmented(
    cases: Cases,
    index: Tensor,
    moves: Moves,
    fill: float,
    device: torch.device | str = "cpu",
    *,
    looks: Looks = UNCHANGED,
    tiles: Tiles | None = None,
) -> Batch:
    """The same, moved: flips and turns keep every pixel exactly. Tiles move about their middles.

    A rotation is bilinear in the image and nearest in the label; beyond the border it leaves `fill`
    and unlabelled pixels, which nobody saw. It is made on the CPU, so that all devices train on the
    same bits, and moved to the device then.
    """
    if tiles is None:
        tiles = Tiles(torch.zeros(len(index), 2, dtype=torch.long), *cases.images.shape[2:])
    count, channels, high, wide = len(index), cases.images.shape[1], tiles.high, tiles.wide
    offset, scale = cases.offset[index], cases.scale[index]
    moved = torch.empty(count, high, wide, channels)
    marks = torch.full((count, high, wide), UNLABELLED, dtype=torch.uint8)
    views = torch.empty(0, 0, 0, dtype=torch.bool) if cases.views is None else cases.views
    seen = torch.zeros(marks.shape if len(views) else views.shape, dtype=torch.uint8)
    beyond = offset + fill * scale  # what normalisation makes `fill`
    inputs = (cases.images, cases.labels, views.view(torch.uint8), index, _maps(moves))
    places = (tiles.centres, beyond, offset, scale)
    arrays = (tensor.numpy() for tensor in (*inputs, *places, moved, marks, seen))
    look = (alteration(any_look=looks.blurs.numel() > 0), tuple(each.numpy() for each in looks))
    move(*(*arrays, *look))
    view = None if cases.views is None else seen.view(torch.bool).to(device)
    return Batch(moved.to(device).permute(0, 3, 1, 2), marks.to(device), view)


def _maps(moves: Moves) -> Tensor:
    """B×4: where a pixel comes from, as offsets from the centre (see `move`)."""
    angle = torch.deg2rad(moves.degrees.double())
    quarter = torch.tensor([[1, 0], [0, 1], [-1, 0], [0, -1]])[moves.turns]  # cosine, sine
    cos = angle.cos() * quarter[:, 0] - angle.sin() * quarter[:, 1]
    sin = angle.sin() * quarter[:, 0] + angle.cos() * quarter[:, 1]
    x, y = 1 - 2 * moves.mirrored.double(), 1 - 2 * moves.upside_down.double()
    return torch.stack((x * cos, -x * sin, y * sin, y * cos), dim=1).float()
