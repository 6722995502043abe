"""Cases with random pixels, and moves of all of them alike."""

import torch

from polyclinic.data.augment import Moves
from polyclinic.data.cases import Cases

SIDE = 48


def cases(count=6, channels=3, side=SIDE, dtype=torch.uint8, seed=0):
    rng = torch.Generator().manual_seed(seed)
    masks = torch.randint(0, 3, (count, side // 8, side // 8), generator=rng, dtype=torch.uint8)
    masks = masks.repeat_interleave(8, 1).repeat_interleave(8, 2)
    return Cases(
        names=tuple(map(str, range(count))),
        patients=tuple(map(str, range(count))),
        images=torch.randint(0, 256, (count, channels, side, side), generator=rng).to(dtype),
        labels=masks,
        masks=masks,
        offset=torch.rand(count, channels, generator=rng) * 50,
        scale=torch.rand(count, channels, generator=rng) * 100 + 50,
        spacing=torch.ones(count, 2, dtype=torch.float64),
    )


def moves(count, upside_down=False, mirrored=False, turns=0, degrees=0.0):
    return Moves(
        torch.full((count,), upside_down),
        torch.full((count,), mirrored),
        torch.full((count,), turns),
        torch.full((count,), degrees),
    )


def everything(data):
    return torch.arange(len(data))
