"""Prompts: small maps that tell a network what all sites know, whose image it is and how labelled.

A prompt has a size of its own and is resampled to the deepest map, so a model is not tied to one
size of images.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from polyclinic.weak.kind import SPARSITIES


class Prompts(nn.Module):
    """A universal prompt, one for the images of each site, and three constant ones for labels.

    Which of them are the site's own say two buffers, which are private to it.
    """

    place: Tensor
    sparsity: Tensor

    def __init__(
        self, sites: int, size: int, *, universal: bool, distribution: bool, sparsity: bool
    ) -> None:
        super().__init__()
        self.size = size
        self.universal = nn.Parameter(torch.rand(1, size, size)) if universal else None
        self.sites = nn.Parameter(torch.rand(sites, size, size)) if distribution else None
        self.knows_sparsity = sparsity
        self.channels = int(universal) + int(distribution) + len(SPARSITIES) * int(sparsity)
        self.register_buffer("place", torch.zeros(sites))
        self.register_buffer("sparsity", torch.zeros(len(SPARSITIES)))

    @property
    def values(self) -> int:
        """How many numbers the prompts of a site are."""
        learned = [each for each in (self.universal, self.sites) if each is not None]
        return self.size**2 * len(learned) + len(SPARSITIES) * int(self.knows_sparsity)

    def own(self) -> Tensor:
        """Give the prompts of the site as one vector."""
        found = [] if self.universal is None else [self.universal.flatten()]
        if self.sites is not None:
            found.append(torch.einsum("n,nhw->hw", self.place, self.sites).flatten())
        return torch.cat([*found, self.sparsity] if self.knows_sparsity else found)

    def forward(self, maps: Tensor) -> Tensor:
        """Give the site's prompts (batch × prompts × height × width) in the size of the maps."""
        batch, _, *size = maps.shape
        found: list[Tensor] = [] if self.universal is None else [self.universal]
        if self.sites is not None:
            found.append(torch.einsum("n,nhw->hw", self.place, self.sites)[None])
        learned = [_resampled(each[None], size) for each in found]
        if self.knows_sparsity:
            learned.append(self.sparsity[None, :, None, None].expand(1, -1, *size))
        prompts = torch.cat(learned, 1) if learned else maps.new_zeros(1, 0, *size)
        return prompts.expand(batch, -1, -1, -1)


def _resampled(prompt: Tensor, size: list[int]) -> Tensor:
    if list(prompt.shape[2:]) == size:
        return prompt
    # Smoothed before it is made smaller, so that every value counts and learns.
    return functional.interpolate(prompt, size, mode="bilinear", antialias=True)
