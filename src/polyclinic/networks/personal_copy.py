"""A network with a personal copy of itself beside it, and two ways to mix the two."""

import copy
from typing import Literal, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call

from polyclinic.networks.contract import Extended, Segmenter

Mixing = Literal["outputs", "weights"]
COPY, ALPHA = "personal", "mixture.alpha"  # the copy, and how much of it is in the mixture


class WholeModel(nn.Module):
    """Encoder, decoder and head without the rest of a network."""

    def __init__(self, net: Segmenter) -> None:
        super().__init__()
        self.encoder = net.encoder
        self.decoder = net.decoder
        self.head = net.head

    def forward(self, images: Tensor) -> Tensor:
        """Give logits in the size of the images."""
        return cast(Tensor, self.head(self.decoder(self.features(images))[-1]))

    def features(self, images: Tensor) -> list[Tensor]:
        """Give the encoder's maps, finest first."""
        return cast(list[Tensor], self.encoder(images.to(memory_format=torch.channels_last)))


class WithPersonalCopy(Extended):
    """Another network, and a second one that starts as its copy and shows what it sees."""

    def __init__(self, net: Segmenter) -> None:
        super().__init__(net)
        self.personal = WholeModel(copy.deepcopy(net))

    def shared_logits(self, images: Tensor) -> Tensor:
        """Give the logits of the network itself."""
        return cast(Tensor, self.head(self.decoder(super().features(images))[-1]))

    def personal_logits(self, images: Tensor) -> Tensor:
        """Give the logits of the copy."""
        self.check(images)
        return cast(Tensor, self.personal(images))

    def forward(self, images: Tensor) -> Tensor:
        """Give the logits of the copy."""
        return self.personal_logits(images)

    def embed(self, images: Tensor) -> Tensor:
        """Give the map that the copy's head turns into logits."""
        return cast(Tensor, self.personal.decoder(self.features(images))[-1])

    def features(self, images: Tensor) -> list[Tensor]:
        """Give the maps of the copy's encoder, finest first."""
        self.check(images)
        return self.personal.features(images)


class MixedSegmenter(WithPersonalCopy):
    """A network whose logits, or whose weights, are mixed with those of its personal copy.

    The copy counts `alpha`, the network itself the rest. Where weights are mixed, running
    statistics are too, when predicting; while training the copy's own follow the mixture.
    """

    def __init__(self, net: Segmenter, *, mixing: Mixing, alpha: float) -> None:
        super().__init__(net)
        self.mixing = mixing
        self.mixture = nn.Module()  # last: what comes before must lie in memory as without it
        self.mixture.register_buffer("alpha", torch.tensor(alpha))

    @property
    def alpha(self) -> Tensor:
        """How much the copy counts."""
        return self.get_buffer(ALPHA)

    def forward(self, images: Tensor) -> Tensor:
        """Give the logits of the mixture."""
        if self.mixing == "weights":
            return self.with_mixed_weights(images, self.alpha, self._own())
        personal = self.personal_logits(images)
        return self.alpha * personal + (1 - self.alpha) * self.shared_logits(images)

    def both(self, images: Tensor, alpha: Tensor) -> tuple[Tensor, Tensor]:
        """Give the network's logits and the mixture's, in which the network is at rest.

        Both see the same random draws, and each moves its own running statistics once.
        """
        with torch.random.fork_rng():
            if self.mixing == "weights":
                resting = {name: each.detach() for name, each in self._own().items()}
                mixed = self.with_mixed_weights(images, alpha, resting)
            else:
                mixed = alpha * self.personal_logits(images)
        shared = self.shared_logits(images)
        if self.mixing == "outputs":
            mixed = mixed + (1 - alpha) * shared.detach()
        return shared, mixed

    def with_mixed_weights(self, images: Tensor, alpha: Tensor, own: dict[str, Tensor]) -> Tensor:
        """Give the logits of the copy with its weights mixed with these."""
        exporting = torch.compiler.is_exporting()  # a graph cannot ask for a value
        if not exporting and alpha == 1 and not alpha.requires_grad:
            return self.personal_logits(images)  # spares a copy, and the ulps it may cost
        self.check(images)
        theirs: dict[str, Tensor] = dict(self.personal.named_parameters())
        if not self.training:
            theirs |= {n: each for n, each in self.personal.named_buffers() if n in own}
        mixed = {name: alpha * each + (1 - alpha) * own[name] for name, each in theirs.items()}
        return cast(Tensor, functional_call(self.personal, mixed, (images,)))

    def _own(self) -> dict[str, Tensor]:
        """The network's parameters and floating point buffers, by the names the copy gives them."""
        own = {**dict(self.named_parameters()), **dict(self.named_buffers())}
        outside = (f"{COPY}.", ALPHA)
        return {
            name: each
            for name, each in own.items()
            if not name.startswith(outside) and each.is_floating_point()
        }
