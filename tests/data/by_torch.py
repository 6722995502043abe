"""Moves and looks with torch's own operations: what the compiled functions must give."""

import torch
from torch.nn.functional import grid_sample, interpolate

from polyclinic.data.augment import Tiles, _maps
from polyclinic.data.cases import Batch
from polyclinic.data.intensity import LOW_BITS, STEPS, UNCHANGED
from polyclinic.data.random_views import blurred
from polyclinic.masks import UNLABELLED

DEVIATION = (4 * (256**2 - 1) / 12) ** 0.5  # of the sum of four random bytes


def moved_by_torch(cases, index, moves, fill, device, looks=UNCHANGED, tiles=None):
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


def _marked(marks, around, moves, tiles, grid):
    """B×H×W classes, moved; `around` them where a rotation leaves nothing."""
    moved = marks.new_empty((len(marks), tiles.high, tiles.wide))
    still, rotated = (moves.degrees == 0).nonzero()[:, 0], moves.degrees.nonzero()[:, 0]
    _put(moved, still, _turned(marks, still, moves, tiles))
    # Sampling has no uint8 version; float32 holds the classes exactly.
    pixels = _at(rotated, marks)[:, None].float()
    _put(moved, rotated, _sampled(pixels, grid, "nearest", around).add_(around)[:, 0])
    return moved


def _picked(cases, index, device):
    tensors = (cases.images, cases.labels, cases.offset, cases.scale)
    images, labels, offset, scale = (_at(index, tensor).to(device) for tensor in tensors)
    view = None if cases.views is None else _at(index, cases.views).to(device)
    return images, labels, view, offset[:, :, None, None], scale[:, :, None, None]


def _at(index, tensor):
    return tensor.index_select(0, index.to(tensor.device))


def _put(target, index, values):
    # One by one, as copies between different memory layouts are much slower when indexed.
    for n, value in zip(index.tolist(), values, strict=True):
        target[n] = value


def _turned(pixels, index, moves, tiles):
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


def _grid(moves, tiles, index, size):
    """B×H×W×2: where each pixel of a moved tile comes from, x and y from -1 to 1 in its image."""
    high, wide = size
    maps = _maps(moves)[index][:, :, None, None]
    centres = tiles.centres[index]
    down = torch.arange(tiles.high).view(1, -1, 1) - (tiles.high - 1) / 2
    right = torch.arange(tiles.wide).view(1, 1, -1) - (tiles.wide - 1) / 2
    x = maps[:, 0] * right + maps[:, 1] * down + centres[:, 0, None, None]
    y = maps[:, 2] * right + maps[:, 3] * down + centres[:, 1, None, None]
    return torch.stack(((2 * x + 1) / wide - 1, (2 * y + 1) / high - 1), dim=3)


def _sampled(pixels, grid, mode, beyond):
    """The pixels on the grid less `beyond`, which thereby is what lies outside of the image."""
    return grid_sample(pixels.sub_(beyond), grid, mode=mode, align_corners=False)


def altered(images, looks):
    """Normalised images (B×C×H×W) with other looks, on any device."""
    if not looks.blurs.numel():
        return images
    found = [
        _noisy(_coarse(blurred(image, blur[None]), int(nodes)), *rest)
        for image, blur, nodes, *rest in zip(images.split(1), *looks, strict=True)
    ]
    return torch.cat(found)


def _coarse(image, nodes):
    """The image as if it had `nodes` × `nodes` pixels."""
    if not nodes:
        return image
    size = image.shape[2:]
    rows, columns = (
        ((2 * torch.arange(nodes) + 1) * length // (2 * nodes)).to(image.device) for length in size
    )
    return interpolate(image[:, :, rows][:, :, :, columns], size, mode="bilinear")


def _noisy(image, noise, seed, curve, low, span):
    """The image with noise, through its curve."""
    _, channels, high, wide = image.shape
    order = torch.arange(high * wide * channels, device=image.device)
    bytes_ = scrambled(order, int(seed)).view(high, wide, channels).permute(2, 0, 1)
    total = sum(bytes_ >> shift & 255 for shift in (0, 8, 16, 24)) - 510
    shares = (image - float(low)) / float(span) + float(noise) / DEVIATION * total
    places = (shares * STEPS).clamp(0, STEPS)
    below = places.floor().clamp(max=STEPS - 1)
    curve = curve.to(image.device)
    first, second = curve[below.long()], curve[below.long() + 1]
    return first + (places - below) * (second - first)


def scrambled(numbers, seed):
    """A random whole number below 2³² for each number, always the same (murmur's last steps)."""
    mixed = (numbers * 0x9E3779B1 ^ seed) & LOW_BITS
    mixed = ((mixed ^ mixed >> 16) * 0x85EBCA6B) & LOW_BITS
    mixed = ((mixed ^ mixed >> 13) * 0xC2B2AE35) & LOW_BITS
    return mixed ^ mixed >> 16
