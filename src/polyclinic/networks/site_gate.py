"""Site contrastive representation: gates on channels that depend on whose images they are."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

Pooling = Literal["average+max", "average"]
REDUCTION, LEAST = 16, 4  # the bottleneck's share of the channels, and its width in small networks


class SiteGate(nn.Module):
    """A gate in 0…1 for each channel, from a site's one-hot code and the pooled map.

    "average+max" adds two branches of one bottleneck before the sigmoid, as published code does;
    "average" has one pooled map and one layer, as the paper says. The code of the site at work is a
    buffer of its own, which is private to the site.
    """

    code: Tensor

    def __init__(self, channels: int, sites: int, pooling: Pooling = "average+max") -> None:
        super().__init__()
        self.pooling = pooling
        self.embed = nn.Sequential(
            nn.Linear(sites, channels, bias=False),
            nn.ReLU(),
            nn.Linear(channels, channels, bias=False),
        )
        narrow = max(LEAST, channels // REDUCTION)
        self.weigh: nn.Module = nn.Linear(2 * channels, channels, bias=False)
        if pooling == "average+max":
            self.weigh = nn.Sequential(
                nn.Linear(2 * channels, narrow, bias=False),
                nn.ReLU(),
                nn.Linear(narrow, channels, bias=False),
            )
        self.register_buffer("code", torch.zeros(sites))

    def forward(self, maps: Tensor) -> Tensor:
        """Give the gates of the site at work (batch × channels) for maps of its images."""
        return self._gates(maps, self.code[None])[0]

    @torch.no_grad()
    def of_others(self, maps: Tensor) -> Tensor:
        """Give the gates (sites − 1 × batch × channels) that every other code would have given."""
        codes = torch.eye(len(self.code), dtype=self.code.dtype, device=self.code.device)
        return self._gates(maps, codes[self.code == 0])

    def _gates(self, maps: Tensor, codes: Tensor) -> Tensor:
        pooled = [maps.mean((2, 3))]
        if self.pooling == "average+max":
            pooled.append(maps.amax((2, 3)))
        size = (len(codes), len(maps), maps.shape[1])
        embedded = self.embed(codes)[:, None].expand(size)
        branches = [self.weigh(torch.cat((each.expand(size), embedded), 2)) for each in pooled]
        return torch.stack(branches).sum(0).sigmoid()


def gated(maps: Tensor, gates: Tensor) -> Tensor:
    """Give the maps with each channel raised by its gate: maps + maps · gate."""
    return maps + maps * gates[:, :, None, None]
