"""A loss at a site that does not tell all classes apart: it sees the sum of their probabilities.

Marginal losses for partial labels: Shi et al., Medical Image Analysis 2021 (arXiv 2007.03868).
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from polyclinic.losses.supervised import LabelError, Loss
from polyclinic.masks import UNLABELLED, Groups


@dataclass(frozen=True)
class Marginal:
    """A loss whose classes are the groups of classes that a site tells apart.

    Where there are several groupings, as in pooled images, labels of grouping n have n·K added, and
    each grouping counts by its share of the labelled pixels.
    """

    loss: Loss
    groups: tuple[Groups, ...]

    def __call__(self, logits: Tensor, label: Tensor) -> Tensor:
        """Give the loss of the groups' logits (B×G×H×W) against labels with the groups' numbers."""
        if len(self.groups) == 1:
            return self.loss(*grouped(logits, label, self.groups[0]))
        classes, labelled = logits.shape[1], label != UNLABELLED
        total = logits.new_zeros((), dtype=torch.promote_types(logits.dtype, torch.float32))
        for place, groups in enumerate(self.groups):
            own = labelled & (label.div(classes, rounding_mode="floor") == place)
            share = own.sum() / labelled.sum().clamp(min=1)
            here = torch.where(own, label - place * classes, UNLABELLED)
            total = total + share * self.loss(*grouped(logits, here, groups))
        return total


def grouped(logits: Tensor, label: Tensor, groups: Groups) -> tuple[Tensor, Tensor]:
    """Give the logits of groups, whose softmax sums their classes' probabilities, and the label.

    In the label, a group's number is its place among the groups instead of its first class.
    """
    if len(groups) != logits.shape[1]:
        raise LabelError(f"{len(groups)} classes are grouped, the network has {logits.shape[1]}")
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    members = _members(groups)
    planes = [wide[:, m[0]] if len(m) == 1 else wide[:, m].logsumexp(1) for m in members]
    firsts = [first for first, *_ in members]
    numbers = torch.full((UNLABELLED + 1,), UNLABELLED - 1, dtype=torch.uint8, device=label.device)
    numbers[firsts] = torch.arange(len(firsts), dtype=torch.uint8, device=label.device)
    numbers[UNLABELLED] = UNLABELLED
    return torch.stack(planes, 1), numbers[label.long()]


def summed(probabilities: Tensor, groups: Groups) -> Tensor:
    """Give the probabilities (…×K×H×W) of groups (…×G×H×W)."""
    return torch.stack([probabilities[..., m, :, :].sum(-3) for m in _members(groups)], -3)


def _members(groups: Groups) -> list[list[int]]:
    return [[n for n, g in enumerate(groups) if g == first] for first in sorted(set(groups))]
