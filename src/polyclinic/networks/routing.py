"""A network whose convolutions are mixtures of several models', weighed anew for every image."""

import copy
from collections.abc import Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call

from polyclinic.networks.contract import Segmenter
from polyclinic.networks.parts import BATCH_NORMS, Names, norms, parameters

Gates = Literal["independent", "normalised"]
Convolution = nn.Conv2d | nn.ConvTranspose2d


class RoutedConv(nn.Module):
    """A convolution whose kernel is a sum of experts' kernels, weighed by the image's own map.

    The gates are sigmoids of two linear layers over the map's mean, as they are or as shares.
    """

    def __init__(
        self, conv: Convolution, experts: Sequence[Mapping[str, Tensor]], gates: Gates
    ) -> None:
        super().__init__()
        self.conv = conv
        self.gates = gates
        channels = conv.in_channels
        self.router = nn.Sequential(
            nn.Linear(channels, 2 * channels),
            nn.Dropout(0.2),
            nn.Linear(2 * channels, len(experts)),
            nn.Sigmoid(),
        ).to(conv.weight.device)
        self.names = tuple(experts[0])
        for name in self.names:
            self.register_buffer(f"experts_{name}", torch.stack([each[name] for each in experts]))

    def forward(self, *maps: Tensor) -> Tensor:
        """Give the convolution of the maps, each image's with a kernel of its own."""
        images = zip(*(each.split(1) for each in maps), strict=True)
        found = [
            functional_call(self.conv, self.mixed(row), image)
            for row, image in zip(self.weigh(*maps), images, strict=True)
        ]
        return torch.cat(found)

    def weigh(self, *maps: Tensor) -> Tensor:
        """Give how much each expert counts for each image (batch × experts)."""
        gates: Tensor = self.router(torch.cat([each.mean((2, 3)) for each in maps], 1))
        return gates / gates.sum(1, keepdim=True) if self.gates == "normalised" else gates

    def mixed(self, gates: Tensor) -> dict[str, Tensor]:
        """Give kernel and bias for gates that say how much each expert counts."""
        return {
            name: torch.einsum("e,e...->...", gates, self.get_buffer(f"experts_{name}"))
            for name in self.names
        }


def routed(net: Segmenter, experts: Sequence[Mapping[str, Tensor]], gates: Gates) -> Segmenter:
    """Give a copy of the network in which every convolution is routed between the experts.

    All else is the network's own; batches are normalised by their own statistics.
    """
    copied = copy.deepcopy(net)
    found = [(p, m) for p, m in copied.named_modules() if isinstance(m, Convolution)]
    for path, conv in found:
        kernels = [
            {name: each[f"{path}.{name}"].detach() for name, _ in conv.named_parameters()}
            for each in experts
        ]
        parent, _, name = path.rpartition(".")
        setattr(copied.get_submodule(parent), name, RoutedConv(conv, kernels, gates))
    for module in copied.modules():
        if isinstance(module, BATCH_NORMS):
            module.running_mean, module.running_var = None, None
            module.track_running_stats = False
    return copied


def adaptable(net: Segmenter) -> Names:
    """The weights of a routed network that learn at a new site: routers, and scales of norms."""
    routers = [path for path, m in net.named_modules() if isinstance(m, RoutedConv)]
    prefixes = tuple(f"{path}.router." for path in routers)
    learning = frozenset(name for name in parameters(net) if name.startswith(prefixes))
    return learning | (norms(net) & parameters(net))
