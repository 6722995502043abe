"""Pictures of a site's test cases with contours, and a look inside its model for the report.

Embeddings of pixels and maps of attention are patients' data, so only the local engine takes them,
whose sites are all on one machine.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from polyclinic.data.batches import in_order
from polyclinic.data.cases import Cases, SiteData
from polyclinic.data.pictures import compared, draw_classes, draw_heat
from polyclinic.data.tasks import Task
from polyclinic.engine.site_runner import SiteRunner
from polyclinic.engine.states import SiteState
from polyclinic.evaluation.scoring import ScoreRow, best_median_worst
from polyclinic.federation.method import Method
from polyclinic.federation.scoring import AT_ONCE
from polyclinic.federation.site import Site
from polyclinic.masks import UNLABELLED, Groups
from polyclinic.runs import (
    SIZES,
    Embedded,
    Moment,
    Rank,
    RunFolder,
    SiteInfo,
    replacing,
    write_embeddings,
)
from polyclinic.seeds import torch_generator

SIDE = 256  # pixels of a picture
UNSCORED: Rank = "unscored"
PIXELS = 240  # of each site that are embedded, divided among its classes
CASES = 8  # that the pixels come from
IMAGES = 60  # of each site whose features are kept
DRAWN = 3  # cases whose attention is drawn


def draw_pictures(
    run: RunFolder,
    site: str,
    task: Task,
    cases: Cases,
    predicted: NDArray[np.uint8],
    rows: Sequence[ScoreRow],
) -> None:
    """Write the pictures of one site into the run folder."""
    places = [*best_median_worst(cases.names, rows).items()]
    if places:
        places += by_size(cases.masks).items()
    for rank, index in places or [(UNSCORED, index) for index in range(len(cases))]:
        path = run.picture_path(site, rank, cases.names[index])
        _draw_case(path, task, cases, predicted, index)


def draw_guest(
    run: RunFolder,
    owner: str,
    site: str,
    task: Task,
    cases: Cases,
    predicted: NDArray[np.uint8],
) -> None:
    """Write what the owner's model predicted for another site's case of middle size."""
    index = by_size(cases.masks)["middle"]
    path = run.attention_path(site, owner, cases.names[index], "models")
    _draw_case(path, task, cases, predicted, index)


def _draw_case(
    path: Path, task: Task, cases: Cases, predicted: NDArray[np.uint8], index: int
) -> None:
    image, mask = cases.images[index].cpu().numpy(), cases.masks[index].cpu().numpy()
    with replacing(path) as unfinished:
        picture = compared(image, mask, predicted[index], task, SIDE)
        Image.fromarray(picture).save(unfinished, format="PNG")


def by_size(masks: Tensor) -> dict[Rank, int]:
    """The cases at the quartiles of the true foreground's size, whatever was predicted there.

    Of equal sizes the first; every method thus shows the same cases.
    """
    sizes = ((masks > 0) & (masks != UNLABELLED)).flatten(1).sum(1)
    order = sizes.argsort(stable=True).tolist()
    shares = zip(SIZES, (0.25, 0.5, 0.75), strict=True)
    return {rank: order[round(share * (len(order) - 1))] for rank, share in shares}


def look_inside(
    run: RunFolder,
    runner: SiteRunner,
    info: SiteInfo,
    cases: Cases,
    data: Mapping[str, SiteData],
    model_of: Callable[[str], SiteState | None],
) -> None:
    """Keep embeddings of pixels and features of images, and draw maps of methods that have such.

    Attention is drawn with every site's model, so that they can be compared at the same cases.
    """
    method = runner.assignment.method
    final = runner.opened(info, data[info.name], model_of(info.name))
    with method.in_use(final):
        draw_attention(run, method, final, cases)
        after = embedded("after", final, cases)
        features = [image_features("after", final, cases)]
    first = runner.opened(info, data[info.name], None)
    features.insert(0, image_features("before", first, cases))
    write_embeddings(run.embeddings_path(info.name), [embedded("before", first, cases), after])
    write_embeddings(run.features_path(info.name), features)
    for other in runner.assignment.sites:
        if other != info and run.attention_pictures(info.name):
            theirs = runner.opened(other, data[other.name], model_of(other.name))
            with method.in_use(theirs):
                draw_attention(run, method, theirs, cases, whose=info)


@torch.no_grad()
def embedded(moment: Moment, site: Site, cases: Cases) -> Embedded:
    """What the head sees at some pixels of the first cases; the same pixels at both moments."""
    site.net.eval()
    chosen = cases.select(range(min(CASES, len(cases))))
    rng = torch_generator(site.seed, site.info.name, "embeddings")
    places = _places(chosen.masks, site.data.mask_groups, rng)
    maps = [site.net.embed(batch.images) for batch in in_order(chosen, batch=1, device=site.device)]
    height, width = chosen.masks.shape[1:]
    values = [
        maps[case][0, :, y * maps[case].shape[2] // height, x * maps[case].shape[3] // width]
        for case, y, x in places.tolist()
    ]
    stacked = torch.stack(values) if values else torch.empty(0, 0)
    classes = chosen.masks[tuple(places.T)]
    return Embedded(moment, classes.long().numpy(), stacked.double().cpu().numpy())


@torch.no_grad()
def image_features(moment: Moment, site: Site, cases: Cases) -> Embedded:
    """The mean over places of the encoder's coarsest map, a row for each of the first images."""
    site.net.eval()
    chosen = cases.select(range(min(IMAGES, len(cases))))
    found = [
        site.net.features(batch.images)[-1].flatten(2).mean(2)
        for batch in in_order(chosen, batch=AT_ONCE, device=site.device)
    ]
    values = torch.cat(found) if found else torch.empty(0, 0)
    return Embedded(moment, np.zeros(len(values), np.int64), values.double().cpu().numpy())


@torch.no_grad()
def draw_attention(
    run: RunFolder, method: Method, site: Site, cases: Cases, whose: SiteInfo | None = None
) -> None:
    """Write where a site's network looks at the first cases, or what else the method's maps show.

    Cases are the site's own, or another's (`whose`), at which only the last map is drawn.
    """
    site.net.eval()
    chosen = cases.select(range(min(DRAWN, len(cases))))
    for index, batch in enumerate(in_order(chosen, batch=1, device=site.device)):
        found = method.attention_maps(site, batch.images)
        for name, maps in list(found.items())[-1 if whose else 0 :]:
            image, values = chosen.images[index].cpu().numpy(), maps[0].double().cpu().numpy()
            if method.maps == "classes":
                picture = draw_classes(image, values.astype(np.int64), SIDE)
            else:
                picture = draw_heat(image, values, SIDE)
            owner, title = (whose, f"{name}, {site.info.name}") if whose else (site.info, name)
            path = run.attention_path(owner.name, title, chosen.names[index], method.maps)
            with replacing(path) as unfinished:
                Image.fromarray(picture).save(unfinished, format="PNG")


def _places(masks: Tensor, groups: Groups, rng: torch.Generator) -> Tensor:
    """Cases, rows and columns (P×3) of pixels, as many of each class as there can be.

    Where masks do not tell classes apart, nobody knows which a pixel has.
    """
    unknown = {UNLABELLED, *(first for first in groups if groups.count(first) > 1)}
    classes = [number for number in masks.unique().tolist() if number not in unknown]
    found = [torch.empty(0, 3, dtype=torch.long)]
    for number in classes:
        places = (masks == number).nonzero()
        found.append(places[torch.randperm(len(places), generator=rng)[: PIXELS // len(classes)]])
    return torch.cat(found)
