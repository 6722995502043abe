"""Per-FedAvg: a start from which one step is enough (Fallah et al., NeurIPS 2020, 2002.07948)."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from polyclinic.data.cases import Batch
from polyclinic.federation.message import Message
from polyclinic.federation.method import Method, plain_loss
from polyclinic.federation.site import Site
from polyclinic.methods.fast_weights import loss_at, stepped


@dataclass(frozen=True)
class PerFedAvg(Method):
    """FedAvg of weights that are judged after a step at `inner_rate` on another batch.

    A site uses the weights received after `adaptation` such steps on its training images.
    """

    inner_rate: Annotated[float, Field(ge=0)] = 0.01
    """Learning rate of the inner step; 0 is FedAvg."""
    adaptation: Annotated[int, Field(ge=0)] = 1
    """Inner steps that a site takes from the weights it will use; 0 uses them as they are."""
    exact: bool = False
    """Take the gradient through the inner step too (second order)."""

    title: ClassVar[str] = "Per-FedAvg"
    one_branch: ClassVar[bool] = True

    def train(self, site: Site) -> None:
        """Learn from pairs of batches: a step on one, judged on the other."""
        others = site.batches("inner", site.steps)

        def loss(site: Site, batch: Batch) -> Tensor:
            with torch.random.fork_rng():  # the outer pass has the draws it would have alone
                inner = loss_at(site, {}, next(others))
            fast = stepped(site, inner, self.inner_rate, exact=self.exact)
            return loss_at(site, fast, batch, quiet=False)

        site.fit(loss)

    def finalize(self, site: Site) -> Message:
        """Take up the weights received and adapt them; running statistics stay as received."""
        self.receive(site)
        plain = {"optimizer": "sgd", "momentum": 0.0, "weight_decay": 0.0}
        rate = {"learning_rate": self.inner_rate, "schedule": "constant", "keep_optimizer": False}
        training = site.training.model_copy(update=plain | rate)
        with site.quiet():
            site.fit(plain_loss, steps=self.adaptation, training=training)
        return Message()
