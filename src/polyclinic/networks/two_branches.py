"""A second decoder beside a network's own, for pseudo labels that both make together."""

import copy
from typing import Any, cast

from torch import Tensor, nn

from polyclinic.networks.contract import Extended, Segmenter
from polyclinic.networks.parts import BATCH_NORMS, Names, under

SECOND = "second"  # the part that holds a second decoder and head


class Branch(nn.Module):
    """A decoder with its head."""

    def __init__(self, decoder: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.decoder = decoder
        self.head = head

    def forward(self, features: list[Tensor]) -> Tensor:
        """Give logits."""
        return self.head(self.decoder(features)[-1])


class TwoBranches(Extended):
    """Another network's encoder, decoder and head, with a second branch of its own random start.

    Methods treat the second decoder and head as they treat the first: they belong to the same
    parts. Predictions are those of the first.
    """

    def __init__(self, net: Segmenter) -> None:
        super().__init__(net)
        self.second = second_branch(net, alike=False)

    def both(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Give the logits of both branches."""
        features = self.features(images)
        return self.head(self.decoder(features)[-1]), self.second(features)

    def parts(self) -> dict[str, Names]:
        """Publish the parts of the network, those of the decoder and head with both branches."""
        parts = super().parts()
        return parts | {
            name: parts[name] | under(self, f"{SECOND}.{name}") for name in ("decoder", "head")
        }


def branches(net: Segmenter, images: Tensor) -> tuple[Tensor, Tensor | None]:
    """Give the logits of the branch that predicts and, where there is one, of the second."""
    if getattr(net, SECOND, None) is None:
        return net(images), None
    return cast(TwoBranches, net).both(images)


def second_branch(net: Segmenter, *, alike: bool) -> Branch:
    """A copy of the network's decoder and head: as they are, or drawn anew from torch's generator.

    Weights drawn anew are those that the same layers would have in a new network, where they say
    how they are drawn.
    """
    branch = Branch(copy.deepcopy(net.decoder), copy.deepcopy(net.head))
    if not alike:
        for module in branch.modules():
            anew: Any = getattr(module, "reset_parameters", None)
            if anew is not None and not isinstance(module, BATCH_NORMS):  # those are as at first
                anew()
    return branch
