"""Moves, tiles and other looks of a whole batch on its device, normalised on the way."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import grid_sample

from polyclinic.config import AugmentationSettings
from polyclinic.data.augment_kernels import move
from polyclinic.data.cases import Batch, Cases
from polyclinic.data.intensity import UNCHANGED, Looks, altered
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
    images, labels, view, offset, scale = _picked(cases, index, device)
    images = images.float().sub_(offset).div_(scale)
    return Batch(images.contiguous(memory_format=torch.channels_last), labels, view)


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
    and unlabelled pixels, which nobody saw.
    """
    on_cpu = torch.device(device).type == cases.images.device.type == "cpu"
    if tiles is None:
        tiles = Tiles(torch.zeros(len(index), 2, dtype=torch.long), *cases.images.shape[2:])
    way = _moved_by_kernel if on_cpu else moved_by_torch
    return way(cases, index, moves, fill, device, looks, tiles)


def _moved_by_kernel(
    cases: Cases,
    index: Tensor,
    moves: Moves,
    fill: float,
    device: torch.device | str,
    looks: Looks,
    tiles: Tiles,
) -> Batch:
    count, channels, high, wide = len(index), cases.images.shape[1], tiles.high, tiles.wide
    offset, scale = cases.offset[index], cases.scale[index]
    moved = torch.empty(count, high, wide, channels, device=device)
    marks = torch.full((count, high, wide), UNLABELLED, dtype=torch.uint8, device=device)
    views = torch.empty(0, 0, 0, dtype=torch.bool) if cases.views is None else cases.views
    seen = torch.zeros(marks.shape if len(views) else views.shape, dtype=torch.uint8)
    beyond = offset + fill * scale  # what normalisation makes `fill`
    inputs = (cases.images, cases.labels, views.view(torch.uint8), index, _maps(moves))
    places = (tiles.centres, beyond, offset, scale)
    arrays = (tensor.numpy() for tensor in (*inputs, *places, moved, marks, seen))
    look = (alteration(any_look=looks.blurs.numel() > 0), tuple(each.numpy() for each in looks))
    move(*(*arrays, *look))
    view = None if cases.views is None else seen.view(torch.bool)
    return Batch(moved.permute(0, 3, 1, 2), marks, view)


def _maps(moves: Moves) -> Tensor:
    """B×4: where a pixel comes from, as offsets from the centre (see `move`)."""
    angle = torch.deg2rad(moves.degrees.double())
    quarter = torch.tensor([[1, 0], [0, 1], [-1, 0], [0, -1]])[moves.turns]  # cosine, sine
    cos = angle.cos() * quarter[:, 0] - angle.sin() * quarter[:, 1]
    sin = angle.sin() * quarter[:, 0] + angle.cos() * quarter[:, 1]
    x, y = 1 - 2 * moves.mirrored.double(), 1 - 2 * moves.upside_down.double()
    return torch.stack((x * cos, -x * sin, y * sin, y * cos), dim=1).float()


def moved_by_torch(
    cases: Cases,
    index: Tensor,
    moves: Moves,
    fill: float,
    device: torch.device | str,
    looks: Looks = UNCHANGED,
    tiles: Tiles | None = None,
) -> Batch:
    """The same on any device, with torch's own operations."""
    images, labels, view, offset, scale = _picked(cases, index, device)
    if tiles is None:
        tiles = Tiles(torch.zeros(len(index), 2, dtype=torch.long), *images.shape[2:])
    size = (tiles.high, tiles.wide)
    moved = torch.empty(
        (*images.shape[:2], *size), device=device, memory_format=torch.channels_last
    )
    still = (moves.degrees == 0).nonzero()[:, 0]
    pixels = _turned(images, still, moves, tiles)
    _put(moved, still, pixels.float().sub_(offset[still]).div_(scale[still]))
    rotated = moves.degrees.nonzero()[:, 0]
    grid = _grid(moves, tiles, rotated, images.shape[-2:]).to(device)
    beyond = offset[rotated] + fill * scale[rotated]  # what normalisation makes `fill`
    sampled = _sampled(_at(rotated, images).float(), grid, "bilinear", beyond)
    _put(moved, rotated, sampled.div_(scale[rotated]).add_(fill))
    marks = _marked(labels, UNLABELLED, moves, tiles, grid)
    seen = None if view is None else _marked(view, 0, moves, tiles, grid)
    return Batch(altered(moved, looks), marks, seen)


def _marked(marks: Tensor, around: int, moves: Moves, tiles: Tiles, grid: Tensor) -> Tensor:
    """B×H×W classes, moved; `around` them where a rotation leaves nothing."""
    moved = marks.new_empty((len(marks), tiles.high, tiles.wide))
    still, rotated = (moves.degrees == 0).nonzero()[:, 0], moves.degrees.nonzero()[:, 0]
    _put(moved, still, _turned(marks, still, moves, tiles))
    # Sampling has no uint8 version; float32 holds the classes exactly.
    pixels = _at(rotated, marks)[:, None].float()
    _put(moved, rotated, _sampled(pixels, grid, "nearest", around).add_(around)[:, 0])
    return moved


def _picked(
    cases: Cases, index: Tensor, device: torch.device | str
) -> tuple[Tensor, Tensor, Tensor | None, Tensor, Tensor]:
    tensors = (cases.images, cases.labels, cases.offset, cases.scale)
    images, labels, offset, scale = (_at(index, tensor).to(device) for tensor in tensors)
    view = None if cases.views is None else _at(index, cases.views).to(device)
    return images, labels, view, offset[:, :, None, None], scale[:, :, None, None]


def _at(index: Tensor, tensor: Tensor) -> Tensor:
    return tensor.index_select(0, index.to(tensor.device))


def _put(target: Tensor, index: Tensor, values: Tensor) -> None:
    # One by one, as copies between different memory layouts are much slower when indexed.
    for n, value in zip(index.tolist(), values, strict=True):
        target[n] = value


def _turned(pixels: Tensor, index: Tensor, moves: Moves, tiles: Tiles) -> Tensor:
    """The tiles of B×…×H×W at `index`, with the exact moves made."""
    found = [pixels.new_empty((0, *pixels.shape[1:-2], tiles.high, tiles.wide))]
    for n in index.tolist():
        top, left = tiles.starts[n].tolist()
        tile = pixels[n, ..., top : top + tiles.high, left : left + tiles.wide]
        axes = [
            axis
            for axis, flips in ((-2, moves.upside_down), (-1, moves.mirrored))
            if bool(flips[n])
        ]
        found.append(tile.flip(axes).rot90(int(moves.turns[n]), (-2, -1))[None])
    return torch.cat(found)


def _grid(moves: Moves, tiles: Tiles, index: Tensor, size: torch.Size) -> Tensor:
    """B×H×W×2: where each pixel of a moved tile comes from, x and y from -1 to 1 in its image."""
    high, wide = size
    maps = _maps(moves)[index][:, :, None, None]
    centres = tiles.centres[index]
    down = torch.arange(tiles.high).view(1, -1, 1) - (tiles.high - 1) / 2
    right = torch.arange(tiles.wide).view(1, 1, -1) - (tiles.wide - 1) / 2
    x = maps[:, 0] * right + maps[:, 1] * down + centres[:, 0, None, None]
    y = maps[:, 2] * right + maps[:, 3] * down + centres[:, 1, None, None]
    return torch.stack(((2 * x + 1) / wide - 1, (2 * y + 1) / high - 1), dim=3)


def _sampled(pixels: Tensor, grid: Tensor, mode: str, beyond: Tensor | float) -> Tensor:
    """The pixels on the grid less `beyond`, which thereby is what lies outside of the image."""
    return grid_sample(pixels.sub_(beyond), grid, mode=mode, align_corners=False)
