"""Affinity aggregation: what a decoder takes up at each level, by how it meets the encoder."""

from dataclasses import dataclass
from typing import Literal, cast

import torch
from torch import Tensor, nn

from polyclinic.networks.blocks import Norm
from polyclinic.networks.contract import Segmenter
from polyclinic.networks.parts import Names, under

Role = Literal["query", "key", "matrix"]
ROLES: tuple[Role, ...] = ("query", "key", "matrix")


@dataclass(frozen=True)
class Projection:
    """How query, key and matrix are made."""

    kernel: Literal[1, 3] = 1
    """Size of the convolutions."""
    norm: bool = True
    """Put a norm layer behind each convolution."""
    matrix: Literal["linear", "sigmoid"] = "sigmoid"
    """Leave the matrix as it is, or bring it into 0…1."""
    result: Literal["alone", "added"] = "added"
    """Add the product to the decoder's map, or put it in its place."""


class NoPlaceForAttention(ValueError):
    """The levels of a network's decoder take no attention."""


class Affinity(nn.Module):
    """query · matrix(relu(query + key)): query from the decoder, key from the encoder."""

    def __init__(self, enlarged: int, beside: int, projection: Projection) -> None:
        super().__init__()
        self.query = _projected(enlarged, enlarged, projection)
        self.key = _projected(beside, enlarged, projection)
        self.matrix = _projected(enlarged, enlarged, projection)
        self.bounded = projection.matrix == "sigmoid"
        self.added = projection.result == "added"

    def forward(self, enlarged: Tensor, beside: Tensor) -> Tensor:
        """Give what takes the enlarged map's place, with as many channels."""
        query = self.query(enlarged)
        matrix = self.matrix(torch.relu_(query + self.key(beside)))
        product: Tensor = query * (matrix.sigmoid() if self.bounded else matrix)
        return enlarged + product if self.added else product


def add_affinity(net: Segmenter, projection: Projection) -> None:
    """Put an affinity between encoder and decoder at every level of a network's decoder."""
    levels = [module for module in net.decoder.modules() if _takes_attention(module)]
    if not levels:
        raise NoPlaceForAttention(
            f"the decoder of network '{net.name}' has no level that takes an attention; "
            "choose another network, or paa = false"
        )
    for level in levels:
        enlarged, beside = cast(tuple[int, int], level.widths)
        level.attention = Affinity(enlarged, beside, projection)


def affinity(net: nn.Module, *roles: Role) -> Names:
    """Give the names of the queries, keys or matrices at all levels, with their norms."""
    modules = [path for path, module in net.named_modules() if isinstance(module, Affinity)]
    return under(net, *(f"{path}.{role}" for path in modules for role in roles))


def _takes_attention(module: nn.Module) -> bool:
    return hasattr(module, "widths") and getattr(module, "attention", module) is None


def _projected(inputs: int, outputs: int, projection: Projection) -> nn.Module:
    conv = nn.Conv2d(inputs, outputs, projection.kernel, padding=projection.kernel // 2)
    return nn.Sequential(conv, Norm(outputs)) if projection.norm else conv
