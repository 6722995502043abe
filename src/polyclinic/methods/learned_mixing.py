"""Element-wise learned mixing of a site's own weights with the received ones (FedALA's idea).

Used by every method whose sites do not overwrite a part of the network but blend it: the mixture is
`own + (received − own) · W` with one W in [0, 1] for each weight; W = 1 takes the received weight.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from polyclinic.data.cases import Batch
from polyclinic.federation.site import Parameters, Site
from polyclinic.federation.weights import Weights
from polyclinic.networks.parts import Names

STEADY = 10  # passes over which the loss must be steady before the first learning ends early


@dataclass(frozen=True)
class Mixing:
    """How the mixture is learned: one pass a round, several the first time, until it is steady."""

    rate: Annotated[float, Field(ge=0)] = 1.0
    share_of_images: Annotated[float, Field(gt=0, le=1)] = 0.8
    first_passes: Annotated[int, Field(ge=1)] = 20
    tolerance: Annotated[float, Field(ge=0)] = 0.01  # deviation of the last losses when steady


def mix_learned(
    site: Site, own: Weights, loss: Callable[[Site, Batch], Tensor], mixing: Mixing
) -> None:
    """Blend `own` into the received weights the network has, learning W on the site's images.

    W lives in the site's memory and is refined at each visit. Running statistics stay as received.
    """
    received = site.take(own.names)
    first = not any(key.startswith("mixture/") for key in site.memory)
    mixture = {n: site.memory.get(f"mixture/{n}", torch.ones_like(own[n])) for n in own}

    def blend() -> None:
        site.load({n: torch.lerp(own[n], received[n], mixture[n]) for n in own})

    def learn(parameters: Parameters) -> None:
        for name, parameter in parameters.items():
            if parameter.grad is not None:
                slope = parameter.grad * (received[name] - own[name])
                mixture[name] = (mixture[name] - mixing.rate * slope).clamp_(0, 1)
        blend()

    blend()
    if mixing.rate:
        steps = math.ceil(mixing.share_of_images * site.steps_of(epochs=1))
        with site.quiet():
            _learn_until_steady(site, loss, learn, own.names, steps, first, mixing)
    site.memory.update({f"mixture/{n}": w for n, w in mixture.items()})


def _learn_until_steady(
    site: Site,
    loss: Callable[[Site, Batch], Tensor],
    learn: Callable[[Parameters], None],
    names: Names,
    steps: int,
    first: bool,
    mixing: Mixing,
) -> None:
    losses: list[float] = []
    for number in range(mixing.first_passes if first else 1):
        stream = f"mixture {number}"
        fit = site.fit(loss, only=names, steps=steps, stream=stream, update=learn)
        losses.append(fit.loss)
        if len(losses) > STEADY and np.std(losses[-STEADY:]) < mixing.tolerance:
            return
