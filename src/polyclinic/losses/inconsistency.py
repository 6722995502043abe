"""Where models disagree about an image, and a loss that looks there most (FedDP)."""

from typing import Literal

import torch
from torch import Tensor

from polyclinic.masks import UNLABELLED

Inconsistency = Literal["distance", "deviation"]
Mean = Literal["pixels", "guide"]
SURE = 1e-5  # probabilities stay this far from 0 and 1


def inconsistency(maps: Tensor, formula: Inconsistency, *, relative: bool) -> Tensor:
    """How much models disagree (B×K×H×W), from their probabilities (M×B×K×H×W), one's own first.

    "distance" is the mean squared difference of the others to the first, "deviation" the standard
    deviation of all; `relative` divides by the largest value. One model agrees with itself.
    """
    maps = maps.to(torch.promote_types(maps.dtype, torch.float32))
    if len(maps) == 1:
        return torch.zeros_like(maps[0])
    distance = formula == "distance"
    apart = (maps[0] - maps[1:]).square().mean(0) if distance else maps.std(0)
    largest = apart.max()
    return apart / largest if relative and largest > 0 else apart


def guided_entropy(
    probabilities: Tensor, label: Tensor, guide: Tensor, mean: Mean = "pixels"
) -> Tensor:
    """The mean over labelled pixels and classes of the guide times the binary cross entropy.

    With the mean over the guide, its sum stands in place of their number: the value is then that
    of the entropy where models disagree, however small or rare that is; 0 where nothing does.
    """
    classes = torch.arange(probabilities.shape[1], device=label.device).view(1, -1, 1, 1)
    truth = label[:, None] == classes
    sure = probabilities.float().clamp(SURE, 1 - SURE)
    entropy = -torch.where(truth, sure, 1 - sure).log()
    labelled = (label != UNLABELLED)[:, None]
    counted = guide.detach() * labelled
    pixels = (labelled.sum() * probabilities.shape[1]).clamp(min=1)
    count = pixels if mean == "pixels" else counted.sum().clamp(min=SURE**2)
    return (counted * entropy).sum() / count
