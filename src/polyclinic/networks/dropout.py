"""Dropout that draws its random mask eight elements at a time on a CPU."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

LEVELS = 256


class Dropout(nn.Module):
    """Zero elements with probability p, rounded to 1/256, and scale the rest to keep the mean.

    On a CPU one 64-bit draw of torch's default generator decides about eight elements, where
    torch's own dropout makes a serial draw for each. Other devices use torch's dropout.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        if not 0 <= p < 1:
            raise ValueError(f"dropout probability {p} is outside 0 ≤ p < 1")
        self.p = p

    def forward(self, values: Tensor) -> Tensor:
        """Give the thinned values while training and the values themselves otherwise."""
        if not (self.training and self.p):
            return values
        if values.device.type != "cpu":
            return functional.dropout(values, self.p)
        dropped = min(round(self.p * LEVELS), LEVELS - 1)
        return _Thin.apply(values, dropped)  # type: ignore[no-untyped-call]

    def extra_repr(self) -> str:
        """Show the probability in the printed network."""
        return f"p={self.p}"


class _Thin(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, dropped: int) -> Tensor:
        keep = _random_bytes_like(values).ge_(dropped)
        ctx.save_for_backward(keep)
        ctx.scale = LEVELS / (LEVELS - dropped)
        return _masked(values, keep, ctx.scale)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (keep,) = ctx.saved_tensors
        return _masked(gradients[0], keep, ctx.scale), None


def _random_bytes_like(values: Tensor) -> Tensor:
    words = torch.empty((values.numel() + 7) // 8, dtype=torch.int64)
    # From the lowest number up without end: the only call that draws all 64 bits.
    words.random_(-(2**63), None)
    strides = torch.empty_like(values, device="meta").stride()
    return words.view(torch.uint8).as_strided(values.shape, strides)


def _masked(values: Tensor, keep: Tensor, scale: float) -> Tensor:
    # One pass over memory where two products would take two.
    return torch.addcmul(values.new_zeros(()), values, keep, value=scale)
