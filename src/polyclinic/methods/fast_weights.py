"""Fast weights: the weights a step from here, to be judged there while the network stays here."""

from typing import cast

import torch
from torch import Tensor
from torch.func import functional_call

from polyclinic.data.cases import Batch
from polyclinic.federation.site import Site

Fast = dict[str, Tensor]


def stepped(site: Site, loss: Tensor, rate: float, *, exact: bool = False) -> Fast:
    """The network's parameters after a step of plain descent of this loss.

    Gradients at the fast weights reach the parameters as they are (first order); where the step is
    `exact`, also through the step itself.
    """
    own = {name: p for name, p in site.net.named_parameters() if p.requires_grad}
    slopes = torch.autograd.grad(
        loss, list(own.values()), create_graph=exact, retain_graph=True, allow_unused=True
    )
    moved = zip(own.items(), slopes, strict=True)
    return {n: p if slope is None else p - rate * slope for (n, p), slope in moved}


def loss_at(site: Site, fast: Fast, batch: Batch, *, quiet: bool = True) -> Tensor:
    """The supervised loss at these weights, else as the network has them.

    A quiet one leaves running statistics as they are.
    """
    buffers = {name: each.clone() for name, each in site.net.named_buffers()} if quiet else {}
    logits = cast(Tensor, functional_call(site.net, {**fast, **buffers}, (batch.images,)))
    return site.task_loss(logits, batch)
