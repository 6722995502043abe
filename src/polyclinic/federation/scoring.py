"""Predicting and scoring cases at a site, without changing anything there."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polyclinic.data.batches import in_order
from polyclinic.data.cases import Cases, SiteData, with_masks
from polyclinic.data.tasks import Task
from polyclinic.data.tiling import tile_places, tile_weights
from polyclinic.evaluation import METRICS, Metric
from polyclinic.evaluation.scoring import ScoreRow, numbered, score_cases
from polyclinic.federation.site import Site
from polyclinic.losses.supervised import segmentation_loss
from polyclinic.networks.contract import Segmenter, likeliest

if TYPE_CHECKING:
    from polyclinic.federation.method import Method


AT_ONCE = 12  # images predicted together


def class_maps(
    method: "Method", site: Site, cases: Cases, model: Mapping[str, Tensor] | None = None
) -> NDArray[np.uint8]:
    """The most probable class of every pixel, N×H×W; with a model, by its weights in use."""
    with method.in_use(site):
        if model is not None:
            site.load(model)
        found = [likeliest(found).cpu().numpy() for found in predictions(method, site, cases)]
    return np.concatenate(found) if found else cases.masks.numpy()


@torch.no_grad()
def predictions(method: "Method", site: Site, cases: Cases) -> Iterator[Tensor]:
    """Class probabilities (B×K×H×W) of the cases in order, by the weights that are in use.

    What the camera did not see is background.
    """
    site.net.eval()
    for batch in in_order(cases, batch=AT_ONCE, device=site.device):
        yield background_out_of_view(probabilities(method, site, batch.images), batch.view)


def seconds_an_image(site: Site, method: "Method", cases: Cases) -> float:
    """How long the site's model takes for one of the cases, many at once, after a first try."""
    few = cases.select(range(min(AT_ONCE, len(cases))))
    class_maps(method, site, few)
    started = time.perf_counter()
    class_maps(method, site, few)
    return (time.perf_counter() - started) / len(few)


def probabilities(method: "Method", site: Site, images: Tensor) -> Tensor:
    """Those of the whole images, or of overlapping tiles, each pixel most by where it is inner."""
    places = tile_places(images.shape[-1], site.task.tile, site.task.overlap)
    if len(places) == 1:
        return method.predict(site, images)
    weights = torch.from_numpy(tile_weights(site.task.tile)).to(images.device)
    counts = images.new_zeros(images.shape[-2:])
    # Not len(images): an exported model has batches of any size.
    shape = (images.shape[0], len(site.task.classes), *images.shape[-2:])
    blended = images.new_zeros(shape)
    for rows, columns in places:
        tiles = images[..., rows, columns].contiguous(memory_format=torch.channels_last)
        blended[..., rows, columns] += weights * method.predict(site, tiles)
        counts[rows, columns] += weights
    return blended / counts


def score(
    method: "Method",
    site: Site,
    cases: Cases,
    metrics: Sequence[str],
    chosen: Mapping[str, Metric] = {},
    model: Mapping[str, Tensor] | None = None,
) -> tuple[list[ScoreRow], NDArray[np.uint8]]:
    """A row for each case, region and metric, and the class maps they were scored on.

    Regions are those that the site's masks show, metrics those that the study has `chosen` and the
    built-in ones. With a model, the weights that another site predicts with take the place of
    this one's.
    """
    predicted = class_maps(method, site, cases, model)
    return rows_of(predicted, cases, site.data, site.task, metrics, chosen), predicted


def rows_of(
    predicted: NDArray[np.uint8],
    cases: Cases,
    data: SiteData,
    task: Task,
    metrics: Sequence[str],
    chosen: Mapping[str, Metric],
) -> list[ScoreRow]:
    """The same for class maps that are there already."""
    return score_cases(
        predicted,
        cases.masks.cpu().numpy(),
        cases.names,
        data.known(task.regions),
        cases.spacing.numpy(),
        metrics,
        {**METRICS, **chosen},
        numbered(cases.patients),
        () if data.mask_groups else range(len(task.classes)),
    )


def validation_dice(method: "Method", site: Site) -> float:
    """The mean Dice over a site's validation cases and regions."""
    cases = site.data.scorable("val", site.task.regions)
    if not len(cases):
        raise ValueError(f"{type(method).__name__} needs validation cases at site {site.info.name}")
    rows, _ = score(method, site, cases, ["dice"])
    return float(np.mean([row.value for row in rows]))


@torch.no_grad()
def validation_loss(site: Site, net: Segmenter) -> float:
    """The mean loss of a model over the batches of a site's validation cases with masks."""
    cases = with_masks(site.data.val)
    judged = in_order(replace(cases, labels=cases.masks), batch=AT_ONCE, device=site.device)
    loss = site.marginal(segmentation_loss, masks=True)
    return float(torch.stack([loss(net(each.images), each.labels) for each in judged]).mean())


def background_out_of_view(probabilities: Tensor, view: Tensor | None) -> Tensor:
    """The probabilities (B×K×H×W), with certain background (class 0) where nothing was seen."""
    if view is None:
        return probabilities
    background = torch.zeros_like(probabilities)
    background[:, 0] = 1
    return torch.where(view[:, None], probabilities, background)
