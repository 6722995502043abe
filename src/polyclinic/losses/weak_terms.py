"""What stands in for labels that are not there: terms of the loss, in relative units."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from polyclinic.config import WeakSettings
from polyclinic.losses.box_tightness import box_tightness
from polyclinic.losses.gated_crf import closeness, gated_crf
from polyclinic.losses.pseudo_labels import pseudo_dice
from polyclinic.losses.tree import tree_energy, tree_filter
from polyclinic.masks import UNLABELLED

PUBLISHED = (5, 6.0)  # radius and sigma in pixels of the window that published weights belong to


@dataclass(frozen=True)
class Seen:
    """What a network said of a batch, and what the terms compare it with.

    `view` says which pixels (boolean B×H×W) a camera saw, None for all of them; `guides` are maps
    of the images' size for further trees; `second` are the logits of a second branch.
    """

    logits: Tensor
    images: Tensor
    labels: Tensor
    kind: str = ""
    view: Tensor | None = None
    guides: Sequence[Tensor] = ()
    second: Tensor | None = None


def weak_terms(settings: WeakSettings, seen: Seen) -> Tensor:
    """Give the weighted sum of the terms that are on; 0 where none is.

    Pseudo labels are made by two branches: there are none without the logits of a second.
    """
    probabilities = seen.logits.softmax(1)
    loss = probabilities.new_zeros(())
    if settings.tree:
        loss = loss + settings.tree * _tree(settings, seen, probabilities)
    if settings.pseudo_labels and seen.second is not None:
        second, low = seen.second.softmax(1), settings.least_share
        term = pseudo_dice(probabilities, second, low=low, mask=seen.view)
        loss = loss + settings.pseudo_labels * term
    if settings.crf:
        loss = loss + settings.crf * crf_energy(settings, probabilities, seen.images, seen.view)
    if settings.box_tightness:
        tightness = box_tightness(probabilities, seen.labels, seen.kind)
        loss = loss + settings.box_tightness * tightness
    return loss


def crf_energy(
    settings: WeakSettings, probabilities: Tensor, images: Tensor, view: Tensor | None = None
) -> Tensor:
    """Give the gated CRF's energy as it would be with as many neighbours as the published window.

    So a weight means the same whatever the resolution is: a smaller window in pixels has fewer
    pairs, and in a small image more of them lie across a border.
    """
    side = min(images.shape[2:])
    radius, sigma = max(1, round(settings.crf_reach * side)), settings.crf_near * side
    energy = gated_crf(
        probabilities,
        images / math.sqrt(images.shape[1]),
        radius=radius,
        sigma_xy=sigma,
        sigma_rgb=settings.crf_alike,
        mask=view,
    )
    return energy * (_neighbours(*PUBLISHED) / _neighbours(radius, sigma))


def tree_filtered(settings: WeakSettings, values: Tensor, guides: Sequence[Tensor]) -> Tensor:
    """Give values (N×K×H×W) filtered on the tree of one guide after another."""
    for guide in guides:
        values = tree_filter(values, in_mean_steps(guide), settings.tree_alike)
    return values


def in_mean_steps(maps: Tensor) -> Tensor:
    """Give each image's maps (N×C×H×W) in multiples of its root mean square step.

    A step is the difference of two neighbours. How many channels there are, and on what scale,
    makes no difference any more.
    """
    flat = maps.detach().float()
    steps = (flat.diff(dim=axis).square().sum(1).mean((1, 2)) for axis in (2, 3))
    mean = torch.stack(list(steps)).mean(0).sqrt().clamp(min=torch.finfo(flat.dtype).tiny)
    return maps / mean[:, None, None, None]


def _tree(settings: WeakSettings, seen: Seen, probabilities: Tensor) -> Tensor:
    unlabelled = seen.labels == UNLABELLED
    if seen.view is not None:
        unlabelled &= seen.view
    return tree_energy(
        probabilities,
        in_mean_steps(seen.images),
        [in_mean_steps(each) for each in seen.guides],
        unlabelled,
        sigma_low=settings.tree_alike,
        sigma_high=settings.tree_alike,
    )


def _neighbours(radius: int, sigma: float) -> float:
    """The sum of the closeness of all neighbours in a window."""
    half = closeness(radius, sigma)
    return float(2 * half.sum() - half[0].sum() - 1)
