"""Server optimizers: the mean of the sites' changes as a gradient for the server.

FedAvgM (Hsu et al., 2019, arXiv 1909.06335); FedAdam and FedYogi (Reddi et al., ICLR 2021,
arXiv 2003.00295). Running statistics have no gradient: they stay the mean.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from polyclinic.federation.message import Message
from polyclinic.federation.method import Method
from polyclinic.federation.server import Server
from polyclinic.federation.weights import Weights

Rate = Annotated[float, Field(gt=0)]
Decay = Annotated[float, Field(ge=0, lt=1)]
FIRST, SECOND = "first moment", "second moment"


@dataclass(frozen=True)
class FedAvgM(Method):
    """FedAvg with momentum at the server: it keeps going where the last rounds went."""

    momentum: Decay = 0.9
    """Share of the last step that goes on, 0 to below 1; 0 is none."""
    rate: Rate = 1.0
    """Learning rate of the server; 1 without momentum is FedAvg."""

    mean_only: ClassVar[str] = ""

    def combine(self, server: Server, replies: Mapping[str, Message]) -> None:
        """Step from the last weights along the change that the replies suggest."""
        before = server.weights
        super().combine(server, replies)
        learned = server.weights.names - server.buffers
        mean = server.weights.pick(learned)
        change = mean.flat - before.pick(learned).flat
        step = self.step(server.memory, change)
        # In this form a step that is the change itself gives the mean bit by bit.
        server.weights.load(Weights(mean.layout, mean.flat + (step - change)))

    def step(self, memory: dict[str, Tensor], change: Tensor) -> Tensor:
        """What the server adds to its weights."""
        moment = memory.get(FIRST, torch.zeros_like(change)) * self.momentum + change
        memory[FIRST] = moment
        return self.rate * moment


@dataclass(frozen=True)
class FedAdam(FedAvgM):
    """FedAvg with Adam at the server, without bias correction; `smallest` bounds its divisor."""

    momentum: Decay = 0.9
    """Share of the old mean change in the new one; 0 takes the last change alone."""
    rate: Rate = 0.01
    """Learning rate of the server."""
    decay: Decay = 0.99
    """Share of the old mean squared change in the new one; 0 takes the last alone."""
    smallest: Rate = 1e-3
    """What is added to the divisor, in the size of changes (τ); its square is the start."""

    def step(self, memory: dict[str, Tensor], change: Tensor) -> Tensor:
        """The mean change over the root of the mean squared change."""
        first = memory.get(FIRST, torch.zeros_like(change))
        second = memory.get(SECOND, torch.full_like(change, self.smallest**2))
        memory[FIRST] = self.momentum * first + (1 - self.momentum) * change
        memory[SECOND] = self.squares(second, change.square())
        return self.rate * memory[FIRST] / (memory[SECOND].sqrt() + self.smallest)

    def squares(self, old: Tensor, new: Tensor) -> Tensor:
        """The next mean squared change."""
        return self.decay * old + (1 - self.decay) * new


@dataclass(frozen=True)
class FedYogi(FedAdam):
    """FedAdam whose mean squared change is moved by steps that do not depend on how far it is."""

    def squares(self, old: Tensor, new: Tensor) -> Tensor:
        """The next mean squared change."""
        return old - (1 - self.decay) * new * torch.sign(old - new)
