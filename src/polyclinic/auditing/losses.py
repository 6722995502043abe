"""What an attacker who has a case and its mask can see of it: losses of models, difficulty."""

from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polyclinic.data.cases import Cases, SiteData, with_masks
from polyclinic.exporting.choosing import Origin
from polyclinic.exporting.trained import in_use
from polyclinic.federation.scoring import predictions
from polyclinic.losses import Marginal, segmentation_loss

Numbers = NDArray[np.float64]
TINY = 1e-7  # the smallest probability, so that no single pixel decides


@dataclass(frozen=True)
class Sides:
    """A site's cases with masks: those trained on, and those of validation and test."""

    data: SiteData
    members: Cases
    others: tuple[Cases, ...]

    @property
    def parts(self) -> tuple[Cases, ...]:
        """All of them, members first."""
        return (self.members, *self.others)

    @property
    def patients(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The patient of each member and of each other case."""
        return self.members.patients, tuple(p for each in self.others for p in each.patients)


def sides_of(data: SiteData) -> Sides:
    """A site's cases with masks, apart from each other."""
    others = [with_masks(each) for each in (data.val, data.test)]
    return Sides(data, with_masks(data.train), tuple(each for each in others if len(each)))


def losses(origin: Origin, sides: Sides) -> Numbers:
    """The loss of each case, members first: cross entropy and soft Dice against its mask."""
    groups = sides.data.mask_groups
    loss = Marginal(segmentation_loss, (groups,)) if groups else segmentation_loss
    found: list[float] = []
    with in_use(origin) as (method, site):
        site = replace(site, data=sides.data)
        for cases in sides.parts:
            predicted = torch.cat([each.cpu() for each in predictions(method, site, cases)])
            each_of = zip(predicted.clamp(min=TINY).log().split(1), cases.masks, strict=True)
            found += [float(loss(maps, mask[None])) for maps, mask in each_of]
    return np.array(found)


def difficulty(sides: Sides) -> Numbers:
    """The share of each case's pixels that lie at a border of its mask, members first.

    Where borders are, every model errs, whether it has seen the case or not.
    """
    return np.concatenate([_borders(cases.masks) for cases in sides.parts])


def unexplained(values: Numbers, by: Numbers) -> Numbers:
    """What a straight line through all cases does not explain of their values.

    Members and others are fitted together: a model that saw neither gives no hint this way.
    """
    if np.ptp(by) == 0:
        return values - values.mean()
    return values - np.polynomial.Polynomial.fit(by, values, 1)(by)


def _borders(masks: Tensor) -> Numbers:
    count = partial(torch.sum, dim=(1, 2), dtype=torch.float64)
    down = count(masks[:, 1:] != masks[:, :-1])
    right = count(masks[:, :, 1:] != masks[:, :, :-1])
    return np.asarray(((down + right) / masks[0].numel()).cpu().numpy(), np.float64)
