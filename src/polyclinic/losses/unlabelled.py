"""What predictions for images without labels should be: certain, steady and smooth."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import max_pool2d, mse_loss

WINDOW = 21  # pixels, side of the square in which a border is looked for


def entropy(logits: Tensor) -> Tensor:
    """Give the mean entropy of the classes over all pixels."""
    return -(logits.softmax(1) * logits.log_softmax(1)).sum(1).mean()


def steadiness(net: Callable[[Tensor], Tensor], images: Tensor, logits: Tensor) -> Tensor:
    """Give the mean squared distance to what the network says of the images turned and noisy.

    Each batch is turned by quarters, mirrored or both, as drawn from torch's own generator.
    """
    turns, mirrored = (int(each) for each in torch.randint(0, 4, (2,)))
    noisy = images + 0.1 * torch.randn_like(images)
    moved = torch.rot90(noisy, turns, (2, 3))
    moved = moved.flip(3) if mirrored % 2 else moved
    said = net(moved).softmax(1)
    said = said.flip(3) if mirrored % 2 else said
    return mse_loss(torch.rot90(said, -turns, (2, 3)), logits.softmax(1))


def border(logits: Tensor) -> Tensor:
    """Give the length (L2 norm) of what is near the foreground, and not in it."""
    foreground = logits.softmax(1)[:, 1:].sum(1, keepdim=True)
    grown = max_pool2d(foreground, WINDOW, stride=1, padding=WINDOW // 2)
    return (grown - foreground).norm()
