"""What training and scoring see of a site: its cases as tensors, read once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from polyclinic.masks import UNLABELLED, Groups, known_regions


@dataclass(frozen=True)
class Cases:
    """One split of one site; a channel normalised is `(images[n, c] - offset[n, c]) / scale[n, c]`.

    `views` is None where every image was seen all over.
    """

    names: tuple[str, ...]
    patients: tuple[str, ...]
    images: Tensor  # N×C×H×W uint8, or float32 where the files are not 8 bit; not yet normalised
    labels: Tensor  # N×H×W uint8, what training sees: masks or weak labels, 255 = unlabelled
    masks: Tensor  # N×H×W uint8, for scoring; 255 everywhere where a site has none
    offset: Tensor  # N×C float32
    scale: Tensor  # N×C float32
    spacing: Tensor  # N×2 float64, size of a pixel in rows and columns, 1.0 where unknown
    views: Tensor | None = None  # N×H×W bool: what the camera saw

    def __len__(self) -> int:
        return len(self.names)

    def select(self, index: Sequence[int]) -> "Cases":
        """The cases at these positions, in this order."""
        chosen = list(index)
        return replace(
            self,
            names=tuple(self.names[i] for i in chosen),
            patients=tuple(self.patients[i] for i in chosen),
            **{name: tensor[chosen] for name, tensor in self.tensors().items()},
        )

    def tensors(self) -> dict[str, Any]:
        """All tensors that there are, by the names of their fields."""
        return {name: each for name, each in vars(self).items() if isinstance(each, Tensor)}


Regions = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class SiteData:
    """One site's cases by split, and the kind of label it trains on ("mask" = full masks).

    Where several groupings of the classes meet, labels of grouping n have n·K added (K classes).
    """

    name: str
    kind: str
    train: Cases
    val: Cases
    test: Cases
    groups: tuple[Groups, ...] = ()  # of the classes in labels; none where all are told apart
    mask_groups: Groups = ()  # of the classes in masks
    measured: bool = False  # whether spacings are millimetres; else they are pixels of the files

    @property
    def watch(self) -> Cases:
        """The test cases, under the name by which they are looked at while training."""
        return self.test

    def known(self, regions: Regions) -> dict[str, tuple[int, ...]]:
        """The regions that the site's masks show."""
        return known_regions(regions, self.mask_groups)

    def scorable(self, split: str, regions: Regions) -> Cases:
        """The cases of a split with a mask; none where masks show none of the regions."""
        cases: Cases = getattr(self, split)
        return with_masks(cases) if self.known(regions) else cases.select(())


@dataclass(frozen=True)
class Batch:
    """What one training step sees: B×C×H×W float32 normalised images and B×H×W uint8 labels."""

    images: Tensor
    labels: Tensor
    view: Tensor | None = None  # B×H×W bool: what the camera saw; None where that is everything


def with_masks(cases: Cases) -> Cases:
    """The cases that have a mask, so that something can be scored."""
    labelled = (cases.masks != UNLABELLED).flatten(1).any(dim=1)
    return cases if labelled.all() else cases.select(labelled.nonzero().flatten().tolist())


def pool(sites: Sequence[SiteData]) -> SiteData:
    """All sites as one called "pooled", of kind "mixed" where kinds differ.

    Names of cases and patients get their site's name in front: `alpha/07`.
    """
    if not sites:
        raise ValueError("there are no sites to pool")
    kinds = {site.kind for site in sites}
    groups = tuple(dict.fromkeys(site.groups[0] if site.groups else () for site in sites))
    named = [(site.name, _moved(site, groups)) for site in sites]
    return SiteData(
        name="pooled",
        kind=kinds.pop() if len(kinds) == 1 else "mixed",
        train=_joined([(name, site.train) for name, site in named]),
        val=_joined([(name, site.val) for name, site in named]),
        test=_joined([(name, site.test) for name, site in named]),
        groups=_whole(groups),
    )


def _whole(groups: tuple[Groups, ...]) -> tuple[Groups, ...]:
    """The groupings, with that of all classes told apart written out beside others."""
    alone = tuple(range(max(map(len, groups))))
    return tuple(each or alone for each in groups) if alone else ()


def _moved(site: SiteData, groups: tuple[Groups, ...]) -> SiteData:
    """The site with its labels where the loss looks for those of its grouping."""
    place = groups.index(site.groups[0] if site.groups else ())
    step = place * max(map(len, groups))
    if step + max(map(len, groups)) > UNLABELLED:
        raise ValueError("the sites tell classes apart in too many ways to be pooled")
    if not step:
        return site
    cases = (
        replace(each, labels=torch.where(each.labels == UNLABELLED, UNLABELLED, each.labels + step))
        for each in (site.train, site.val, site.test)
    )
    train, val, test = cases
    return replace(site, train=train, val=val, test=test)


def _joined(parts: Sequence[tuple[str, Cases]]) -> Cases:
    all_cases = [cases for _, cases in parts]
    if any(cases.views is not None for cases in all_cases):
        all_cases = [replace(cases, views=_views(cases)) for cases in all_cases]
    tensors = [cases.tensors() for cases in all_cases]
    return Cases(
        tuple(f"{site}/{name}" for site, cases in parts for name in cases.names),
        tuple(f"{site}/{patient}" for site, cases in parts for patient in cases.patients),
        **{name: torch.cat([each[name] for each in tensors]) for name in tensors[0]},
    )


def _views(cases: Cases) -> Tensor:
    """The cases' views; they saw everything where there are none."""
    if cases.views is None:
        return torch.ones_like(cases.masks, dtype=torch.bool)
    return cases.views
