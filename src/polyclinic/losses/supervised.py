"""Losses against labels: cross entropy over labelled pixels, soft Dice, and their sum."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from polyclinic.losses.host import accuracy
from polyclinic.masks import UNLABELLED

Loss = Callable[[Tensor, Tensor], Tensor]
"""A function of logits (B×K×H×W) and labels (B×H×W, 255 = unlabelled) that gives a scalar."""

KINDS = ("ce", "dice", "ce+dice")
SMOOTH = 1e-5


class LabelError(ValueError):
    """A label of another shape, or with a class that the network does not have."""


def soft_dice(probabilities: Tensor, target: Tensor) -> Tensor:
    """Give one minus soft Dice, as the mean over all classes including background.

    Sums run over the labelled pixels of the whole batch; the denominator has squares.
    """
    return _dice(_planes(probabilities), _truth(target, probabilities))


def segmentation_loss(
    logits: Tensor,
    label: Tensor,
    kind: str = "ce+dice",
    *,
    entropy_weight: float = 1.0,
) -> Tensor:
    """Give weighted cross entropy over the labelled pixels, soft Dice or their sum.

    Cross entropy is 0 where no pixel is labelled.
    """
    if kind not in KINDS:
        raise ValueError(f"unknown loss '{kind}', allowed: {', '.join(KINDS)}")
    log_probabilities, truth = torch.log_softmax(_planes(logits), 0), _truth(label, logits)
    terms = kind.split("+")
    loss = logits.new_zeros((), dtype=truth.dtype)
    if "ce" in terms:
        entropy = -(log_probabilities * truth).sum() / truth.sum().clamp(min=1)
        loss = loss + entropy_weight * entropy
    if "dice" in terms:
        loss = loss + _dice(log_probabilities.exp(), truth)
    return loss


@dataclass(frozen=True)
class SegmentationLoss:
    """A loss that a study can name, and a line about it."""

    kind: str
    summary: str
    entropy_weight: float = 1.0

    def __call__(self, logits: Tensor, label: Tensor) -> Tensor:
        """Give the loss of a batch, all of it from one softmax."""
        return segmentation_loss(logits, label, self.kind, entropy_weight=self.entropy_weight)


LOSSES: Mapping[str, Loss] = {
    "ce": SegmentationLoss("ce", "cross entropy over the labelled pixels"),
    "dice": SegmentationLoss("dice", "soft Dice over the labelled pixels"),
    "ce+dice": SegmentationLoss("ce+dice", "the sum of both"),
}


def virtual_class_loss(logits: Tensor) -> Tensor:
    """Give the mean cross entropy of pixels against their own largest logit (batch × V × H × W).

    Only virtual classes stand in the softmax. A single one leaves nothing to choose: 0.
    """
    logits = logits.to(accuracy(logits))
    return (logits.logsumexp(1) - logits.amax(1)).mean()


def _dice(probabilities: Tensor, truth: Tensor) -> Tensor:
    counted = probabilities * truth.sum(0)
    overlap = (counted * truth).sum(1)
    size = (counted * counted).sum(1) + truth.sum(1)
    return 1 - ((2 * overlap + SMOOTH) / (size + SMOOTH)).mean()


def _planes(maps: Tensor) -> Tensor:
    """Give batch × classes × height × width as classes × pixels, in float32 at least."""
    return maps.movedim(1, 0).flatten(1).to(accuracy(maps))


def _truth(label: Tensor, maps: Tensor) -> Tensor:
    """Give the label as classes × pixels of zeros and ones; unlabelled pixels are all zero."""
    batch, classes, *size = maps.shape
    if label.shape != (batch, *size):
        shapes = f"{tuple(label.shape)} and the network's output {tuple(maps.shape)}"
        raise LabelError(f"the label's shape {shapes} do not belong together")
    pixels = label.flatten()
    # Compared in place, bytes stay bytes: many times faster than making booleans.
    planes = torch.stack([pixels.clone().eq_(value) for value in range(classes)])
    if planes.sum() != pixels.clone().ne_(UNLABELLED).sum():
        strange = sorted(set(pixels.unique().tolist()) - {*range(classes), UNLABELLED})
        raise LabelError(
            f"the label holds {strange}; allowed are classes 0 to {classes - 1}, "
            f"and {UNLABELLED} where it says nothing"
        )
    return planes.to(accuracy(maps))
