"""Flips, quarter turns and rotations of a whole batch on its device, normalised on the way."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import grid_sample

from polyclinic.config import AugmentationSettings
from polyclinic.data.augment_kernels import move
from polyclinic.data.cases import Batch, Cases
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


def normalised(cases: Cases, index: Tensor, device: torch.device | str = "cpu") -> Batch:
    """The cases at `index` on `device`, images normalised and channels-last, nothing moved."""
    images, labels, view, offset, scale = _picked(cases, index, device)
    images = images.float().sub_(offset).div_(scale)
    return Batch(images.contiguous(memory_format=torch.channels_last), labels, view)


def augmented(
    cases: Cases, index: Tensor, moves: Moves, fill: float, device: torch.device | str = "cpu"
) -> Batch:
    """The same, moved: flips and turns keep every pixel exactly.

    A rotation is bilinear in the image and nearest in the label; beyond the border it leaves `fill`
    and unlabelled pixels, which nobody saw.
    """
    on_cpu = torch.device(device).type == cases.images.device.type == "cpu"
    return (_moved_by_kernel if on_cpu else moved_by_torch)(cases, index, moves, fill, device)


def _moved_by_kernel(
    cases: Cases, index: Tensor, moves: Moves, fill: float, device: torch.device | str
) -> Batch:
    count, channels, high, wide = len(index), *cases.images.shape[1:]
    offset, scale = cases.offset[index], cases.scale[index]
    moved = torch.empty(count, high, wide, channels, device=device)
    marks = torch.full((count, high, wide), UNLABELLED, dtype=torch.uint8, device=device)
    views = torch.empty(0, 0, 0, dtype=torch.bool) if cases.views is None else cases.views
    seen = torch.zeros(marks.shape if len(views) else views.shape, dtype=torch.uint8)
    beyond = offset + fill * scale  # what normalisation makes `fill`
    inputs = (cases.images, cases.labels, views.view(torch.uint8), index, _maps(moves))
    outputs = (moved, marks, seen)
    move(*(tensor.numpy() for tensor in (*inputs, beyond, offset, scale, *outputs)))
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
    cases: Cases, index: Tensor, moves: Moves, fill: float, device: torch.device | str
) -> Batch:
    """The same on any device, with torch's own operations."""
    images, labels, view, offset, scale = _picked(cases, index, device)
    for pixels in (images, labels, view):
        if pixels is not None:
            _turn(pixels, moves)
    moved = torch.empty(images.shape, device=device, memory_format=torch.channels_last)
    still = (moves.degrees == 0).nonzero()[:, 0]
    _put(moved, still, _at(still, images).float().sub_(offset[still]).div_(scale[still]))
    rotated = moves.degrees.nonzero()[:, 0]
    if len(rotated):
        grid = _grid(moves.degrees[rotated].to(device), images.shape[-2:])
        scales = scale[rotated]
        beyond = offset[rotated] + fill * scales  # what normalisation makes `fill`
        sampled = _sampled(_at(rotated, images).float(), grid, "bilinear", beyond)
        _put(moved, rotated, sampled.div_(scales).add_(fill))
        for marks, around in ((labels, UNLABELLED), (view, 0)):
            if marks is not None:
                # Sampling has no uint8 version; float32 holds the classes exactly.
                rotating = _at(rotated, marks)[:, None].float()
                rotating = _sampled(rotating, grid, "nearest", around).add_(around)
                _put(marks, rotated, rotating[:, 0])
    return Batch(moved, labels, view)


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


def _turn(pixels: Tensor, moves: Moves) -> None:
    """Make the exact moves in B×…×H×W, in place."""
    chosen = (moves.upside_down.tolist(), moves.mirrored.tolist(), moves.turns.tolist())
    for n, (upside_down, mirrored, turns) in enumerate(zip(*chosen, strict=True)):
        axes = [axis for axis, flipped in ((-2, upside_down), (-1, mirrored)) if flipped]
        if axes or turns:
            pixels[n] = pixels[n].flip(axes).rot90(turns, (-2, -1))


def _grid(degrees: Tensor, size: torch.Size) -> Tensor:
    """B×H×W×2: where each pixel of a rotated image comes from, x and y from -1 to 1."""
    high, wide = size
    angle = torch.deg2rad(degrees).view(-1, 1, 1)
    down = torch.arange(1 - high, high, 2, device=degrees.device).view(1, -1, 1)
    right = torch.arange(1 - wide, wide, 2, device=degrees.device).view(1, 1, -1)
    cos, sin = angle.cos(), angle.sin()
    grid = torch.empty(len(degrees), high, wide, 2, device=degrees.device)
    torch.sub(cos / wide * right, sin / wide * down, out=grid[..., 0])
    torch.add(sin / high * right, cos / high * down, out=grid[..., 1])
    return grid


def _sampled(pixels: Tensor, grid: Tensor, mode: str, beyond: Tensor | float) -> Tensor:
    """The pixels on the grid less `beyond`, which thereby is what lies outside of the image."""
    return grid_sample(pixels.sub_(beyond), grid, mode=mode, align_corners=False)
