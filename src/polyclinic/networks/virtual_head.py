"""A head of cosines: kernels of real classes, which learn, and of virtual ones, which never do."""

import math
import random

import torch
from torch import Tensor, nn
from torch.nn import functional

from polyclinic.networks.contract import Segmenter
from polyclinic.networks.widening import smallest_maps

SHORTEST = 1e-6  # of an embedding: below, a direction and its slope would be noise
DRAWS = 12  # uniform draws whose sum is nearly normal, with a variance of one


class VirtualHead(nn.Module):
    """Logits are `scale` times the cosine of a pixel's embedding and a class's kernel.

    All kernels start orthogonal, as long as channels allow. Those of virtual classes are no weights
    but a constant that follows from the seed: nothing trains, averages, sends or saves them. With
    `signed` an embedding is counted from the mean of its channels: what a ReLU left has few
    directions otherwise.
    """

    virtual: Tensor

    def __init__(
        self,
        channels: int,
        *,
        classes: int,
        virtual: int,
        scale: float,
        seed: int,
        signed: bool = False,
        enlargement: int = 1,
    ) -> None:
        super().__init__()
        kernels = orthogonal_rows(virtual + classes, channels, seed)
        self.weight = nn.Parameter(kernels[virtual:].clone())
        self.register_buffer("virtual", kernels[:virtual].clone(), persistent=False)
        self.scale = scale
        self.signed = signed
        self.enlargement = enlargement

    def forward(self, maps: Tensor) -> Tensor:
        """Give the logits of the real classes."""
        return self._real(self._directions(maps))

    def both(self, maps: Tensor) -> tuple[Tensor, Tensor]:
        """Give the logits of the real classes, and of the virtual ones in the size of the maps."""
        directions = self._directions(maps)
        return self._real(directions), self._logits(directions, self.virtual)

    def nearest(self, maps: Tensor) -> Tensor:
        """Give the share of pixels that is nearest to each virtual class."""
        logits = self._logits(self._directions(maps), self.virtual)
        counts = torch.bincount(logits.argmax(1).flatten(), minlength=len(self.virtual))
        return counts / counts.sum()

    def _real(self, directions: Tensor) -> Tensor:
        kernels = functional.normalize(self.weight, dim=1, eps=SHORTEST)
        logits = self._logits(directions, kernels)
        if self.enlargement == 1:
            return logits
        return functional.interpolate(logits, scale_factor=self.enlargement, mode="bilinear")

    def _directions(self, maps: Tensor) -> Tensor:
        centred = maps - maps.mean(1, keepdim=True) if self.signed else maps
        return functional.normalize(centred, dim=1, eps=SHORTEST)

    def _logits(self, directions: Tensor, kernels: Tensor) -> Tensor:
        return functional.conv2d(directions, (self.scale * kernels)[:, :, None, None])


def replace_head(
    net: Segmenter, *, virtual: int, scale: float, seed: int, signed: bool = False
) -> None:
    """Give a network a head of cosines with so many virtual classes in place of its own."""
    last = smallest_maps(net)[1][-1]
    net.head = VirtualHead(
        last.shape[1],
        classes=net.classes,
        virtual=virtual,
        scale=scale,
        seed=seed,
        signed=signed,
        enlargement=net.divisor // last.shape[2],
    )


def orthogonal_rows(count: int, width: int, seed: int) -> Tensor:
    """Give unit rows (count × width), orthogonal as long as they fit: then a new base begins.

    Sums are exact and all other steps correctly rounded, so every machine makes the same bits,
    which no library of linear algebra promises.
    """
    drawing = random.Random(seed)  # noqa: S311  # nothing here is secret
    rows: list[list[float]] = []
    while len(rows) < count:
        base = rows[len(rows) // width * width :]
        row = [math.fsum(drawing.random() for _ in range(DRAWS)) - DRAWS / 2 for _ in range(width)]
        for other in [*base, *base]:  # twice: the second pass takes what rounding left
            share = _product(row, other)
            row = [mine - share * its for mine, its in zip(row, other, strict=True)]
        length = math.sqrt(_product(row, row))
        rows.append([value / length for value in row])
    return torch.tensor(rows, dtype=torch.float64).reshape(count, width).float()


def _product(one: list[float], other: list[float]) -> float:
    return math.fsum(a * b for a, b in zip(one, other, strict=True))
