"""What is usual of a model's predictions, on cases that it did not train on."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polyclinic.data.batches import in_order
from polyclinic.data.cases import Cases, SiteData, pool
from polyclinic.data.tasks import Task
from polyclinic.federation.method import Method
from polyclinic.federation.scoring import predictions
from polyclinic.federation.site import Site
from polyclinic.predict import quality
from polyclinic.predict.facts import QualityFacts

MOST = 200  # cases looked at
FLIPS = (-2, -1)  # the axes along which images are mirrored


@dataclass(frozen=True)
class Known:
    """Cases to learn from what is usual: those to predict, and those that were trained on."""

    split: str
    cases: Cases
    train: Cases


def known_cases(sites: Sequence[SiteData]) -> Known | None:
    """The validation cases of the sites or, where there are none, their training cases."""
    data = sites[0] if len(sites) == 1 else pool(sites) if sites else None
    if data is None or not (len(data.val) or len(data.train)):
        return None
    split = "val" if len(data.val) else "train"
    return Known(split, _spread(getattr(data, split)), _spread(data.train))


@dataclass(frozen=True)
class Look:
    """One model's probabilities (N×K×R×R) for cases as they are and mirrored, turned back."""

    plain: NDArray[np.float32]
    flipped: tuple[NDArray[np.float32], ...]


def look_at(method: Method, site: Site, cases: Cases) -> Look:
    """What the model in use makes of the cases."""
    flipped = (_probabilities(method, site, _mirrored(cases, axis)) for axis in FLIPS)
    turned = [np.flip(each, axis) for each, axis in zip(flipped, FLIPS, strict=True)]
    return Look(_probabilities(method, site, cases), tuple(turned))


def usual(task: Task, known: Known, looks: Sequence[Look]) -> QualityFacts:
    """What is usual of the models' common predictions, and of the images."""
    members = [quality.likeliest(look.plain) for look in looks]
    common = np.mean([look.plain for look in looks], axis=0)
    mean = quality.likeliest(common)
    flipped = [
        quality.likeliest(np.mean(each, axis=0))
        for each in zip(*(look.flipped for look in looks), strict=True)
    ]
    shares = [quality.sizes(each, task) for each in mean]
    sizes = quality.limits(shares)
    trained = [quality.histogram(image, task) for image in _normalised(known.train)]
    histogram = tuple(np.mean(trained, axis=0).tolist())
    measures = []
    for number, image in enumerate(_normalised(known.cases)):
        mirrored = (mean[number], [each[number] for each in flipped])
        own = [member[number] for member in members]
        apart = quality.disagreements(mean[number], common[number], mirrored, own, task)
        measures.append(
            {
                quality.SIZE: quality.size_distance(shares[number], sizes),
                quality.IMAGE: quality.image_distance(quality.histogram(image, task), histogram),
                **apart,
            }
        )
    return QualityFacts(
        cases=len(known.cases),
        split=known.split,
        histogram=histogram,
        images=len(known.train),
        sizes=sizes,
        limits=quality.limits(measures),
    )


def _probabilities(method: Method, site: Site, cases: Cases) -> NDArray[np.float32]:
    return torch.cat([batch.cpu() for batch in predictions(method, site, cases)]).numpy()


def _mirrored(cases: Cases, axis: int) -> Cases:
    views = None if cases.views is None else cases.views.flip(axis)
    return replace(cases, images=cases.images.flip(axis), views=views)


def _normalised(cases: Cases) -> list[NDArray[np.float32]]:
    images: list[Tensor] = [batch.images for batch in in_order(cases, batch=1)]
    return [image[0].numpy() for image in images]


def _spread(cases: Cases) -> Cases:
    """At most `MOST` of the cases, from the first to the last."""
    if len(cases) <= MOST:
        return cases
    return cases.select(np.linspace(0, len(cases) - 1, MOST).astype(int).tolist())
