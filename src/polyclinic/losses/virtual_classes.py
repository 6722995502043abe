"""The virtual half of a dual loss: every pixel belongs to the virtual class it is nearest to."""

from __future__ import annotations

import torch
from torch import Tensor


def virtual_class_loss(logits: Tensor) -> Tensor:
    """Give the mean cross entropy of pixels against their own largest logit (batch × V × H × W).

    Only virtual classes stand in the softmax. A single one leaves nothing to choose: 0.
    """
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return (logits.logsumexp(1) - logits.amax(1)).mean()
