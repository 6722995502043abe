"""Element-wise learned mixing of a site's own weights with the received ones (FedALA's idea).

Used by every method whose sites do not overwrite a part of the network but blend it: the mixture is
`own + (received − own) · W` with one W in [0, 1] for each weight; W = 1 takes the received weight.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from polyclinic.data.cases import Batch
from polyclinic.federation.message import Message
from polyclinic.federation.method import Method, labelled_loss
from polyclinic.federation.site import Parameters, Site
from polyclinic.federation.weights import Weights, group
from polyclinic.networks.contract import Segmenter
from polyclinic.networks.parts import Names, everything

MixingLoss = Literal["full", "supervised"]  # the method's whole objective, or the labels alone
Uses = Literal["trained", "blended"]  # what a site uses: its own last model, or a new blend
OPTIMIZERS = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}
MIXTURE = "mixture"  # W's group in a site's memory
STEADY = 10  # passes over which the loss must be steady before the first learning ends early


@dataclass(frozen=True)
class Mixing:
    """How the mixture is learned: one pass a round, several the first time, until it is steady."""

    rate: Annotated[float, Field(ge=0)] = 1.0
    """Learning rate of the mixture W."""
    optimizer: Literal["sgd", "adam"] = "sgd"
    """Steps of W as its slopes are, or Adam's of about `rate`, however small slopes are."""
    share_of_images: Annotated[float, Field(gt=0, le=1)] = 0.8
    """Share of the site's images that one pass sees."""
    iterations: Annotated[int, Field(ge=1)] | None = None
    """Steps of one pass, in place of a share of the images."""
    first_passes: Annotated[int, Field(ge=1)] = 20
    """The most passes the first time."""
    tolerance: Annotated[float, Field(ge=0)] = 0.01
    """Deviation of the last losses below which the first learning ends."""
    start: Literal["received", "own"] = "received"
    """Whether W starts from the received weights or, as in some code, from the site's own."""
    warm_up: Annotated[int, Field(ge=0)] = 0
    """Rounds in which the received weights are taken as they are."""

    def steps(self, site: Site) -> int:
        """The steps of one pass."""
        return self.iterations or math.ceil(self.share_of_images * site.steps_of(epochs=1))


@dataclass(frozen=True)
class BlendingMethod(Method):
    """FedAvg whose sites blend a part of the network, and use a new blend or their last model."""

    mixing: Mixing = field(default_factory=Mixing)
    """How the blend is learned."""
    mixing_loss: MixingLoss = "full"
    """Loss that W is learned with: the whole objective or the labels alone."""
    uses: Uses = "blended"
    """Model that a site uses in the end: a new blend, or as it was last trained."""

    def blended(self, net: Segmenter) -> Names:
        """The weights that are blended."""
        raise NotImplementedError

    def keeps(self, net: Segmenter) -> Names:
        """What will be blended with the next weights received; all, where it is used as trained."""
        return everything(net) if self.uses == "trained" else self.blended(net)

    def receive_blended(self, site: Site, mixing: Mixing | None) -> None:
        """Take up the weights received, the blended ones by a mixing if there is one."""
        loss = self.loss if self.mixing_loss == "full" else labelled_loss
        receive_mixed(site, self.blended(site.net), loss, mixing)

    def diagnose(self, site: Site, batch: Batch) -> dict[str, float]:  # noqa: ARG002
        """What became of W."""
        return mixture_notes(site)

    def finalize(self, site: Site) -> Message:
        """Use the model as the site trained it, or blend once more."""
        if site.first or self.uses == "blended":
            self.receive(site)
        return Message()


def mixture_notes(site: Site) -> dict[str, float]:
    """Mean and spread of a site's W, and the share of weights in each tenth of its range."""
    learned = [w.flatten() for w in group(site.memory, MIXTURE).values()]
    if not learned:
        return {}
    mixture = torch.cat(learned)
    counts = torch.histc(mixture, bins=10, min=0, max=1) / len(mixture)
    tenths = {f"W {n / 10:.1f}-{(n + 1) / 10:.1f}": float(each) for n, each in enumerate(counts)}
    return {
        "W mean": float(mixture.mean()),
        "W deviation": float(mixture.std(correction=0)),
        **tenths,
    }


def receive_mixed(
    site: Site, names: Names, loss: Callable[[Site, Batch], Tensor], mixing: Mixing | None
) -> None:
    """Take up the message's weights, those with these names blended with the site's own.

    Without a mixing, at a first visit and in the warm-up the received weights are taken alone.
    """
    own = site.take(names)
    site.load(site.message.weights)
    if mixing and not site.first and site.round > mixing.warm_up:
        mix_learned(site, own, loss, mixing)


def mix_learned(
    site: Site, own: Weights, loss: Callable[[Site, Batch], Tensor], mixing: Mixing
) -> None:
    """Blend `own` into the received weights the network has, learning W on the site's images.

    W lives in the site's memory and is refined at each visit. Running statistics stay as received.
    """
    received = site.take(own.names)
    first = not any(key.startswith(f"{MIXTURE}/") for key in site.memory)
    start = torch.ones_like if mixing.start == "received" else torch.zeros_like
    mixture = {n: site.memory.get(f"{MIXTURE}/{n}", start(own[n])).clone() for n in own}

    def blend() -> None:
        site.load({n: torch.lerp(own[n], received[n], mixture[n]) for n in own})

    optimizer = OPTIMIZERS[mixing.optimizer](mixture.values(), lr=mixing.rate)

    def learn(parameters: Parameters) -> None:
        for name, parameter in parameters.items():
            if parameter.grad is not None:
                mixture[name].grad = parameter.grad * (received[name] - own[name])
        optimizer.step()
        for each in mixture.values():
            each.clamp_(0, 1).grad = None
        blend()

    blend()
    if mixing.rate:
        with site.quiet():
            _learn_until_steady(site, loss, learn, own.names, first, mixing)
    site.memory.update({f"{MIXTURE}/{n}": w for n, w in mixture.items()})


def _learn_until_steady(
    site: Site,
    loss: Callable[[Site, Batch], Tensor],
    learn: Callable[[Parameters], None],
    names: Names,
    first: bool,
    mixing: Mixing,
) -> None:
    losses: list[float] = []
    steps = mixing.steps(site)
    for number in range(mixing.first_passes if first else 1):
        stream = f"mixture {number}"
        fit = site.fit(loss, only=names, steps=steps, stream=stream, update=learn)
        losses.append(fit.loss)
        if len(losses) > STEADY and np.std(losses[-STEADY:]) < mixing.tolerance:
            return
