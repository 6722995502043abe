"""Local feature enhancement (pFLFE): an encoder learns from two views of each image alone."""

import copy
import logging
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import normalize

from polyclinic.data.cases import Batch
from polyclinic.data.random_views import Views
from polyclinic.federation.site import Site
from polyclinic.federation.weights import group
from polyclinic.networks.blocks import Norm
from polyclinic.networks.parts import under
from polyclinic.seeds import torch_generator

PROJECTOR = "projector"
TARGET, ENHANCED = "target", "enhanced"  # groups of a site's memory
MOVED, FOLLOWED, BEHIND = "enhancement moved", "target followed", "target behind"
SPREADS = ("spread of embeddings", "spread of features")  # behind the projector and before it
COLLAPSED = (0.1, 0.03)  # spreads below these are told as a collapse; 1 is evenly on the sphere
LATE = 0.25  # the share of a visit's steps, its last ones, that are judged

log = logging.getLogger("polyclinic")


@dataclass(frozen=True)
class Enhancement:
    """How long and how fast the encoder learns from images alone, and by what it is judged."""

    share: Annotated[float, Field(ge=0)] = 1.0
    """Steps of the enhancement over the round's, which they add to; 0 is without it."""
    rate: Annotated[float, Field(gt=0)] = 0.1
    """Learning rate over the study's."""
    decay: Annotated[float, Field(ge=0, le=1)] = 0.99
    """Share of itself that the target keeps at each step."""
    target: Literal["new", "kept"] = "new"
    """Made anew at each visit, as in the paper, or kept at the site from one visit to the next."""
    hidden: Annotated[int, Field(ge=1)] = 512
    """Channels inside the projector."""
    outputs: Annotated[int, Field(ge=1)] = 128
    """Length of an embedding."""


def projector(channels: int, how: Enhancement) -> nn.Module:
    """Maps of so many channels to one embedding for each image.

    The norm at its end holds a batch's embeddings apart. Without it they were nearly the same after
    some hundred steps, since nothing else in the loss does.
    """
    return nn.Sequential(
        nn.AdaptiveAvgPool2d(1),
        nn.Conv2d(channels, how.hidden, kernel_size=1),
        Norm(how.hidden),
        nn.ReLU(inplace=True),
        nn.Conv2d(how.hidden, how.outputs, kernel_size=1),
        Norm(how.outputs),
        nn.Flatten(),
    )


def enhance(site: Site, how: Enhancement, views: Views) -> dict[str, float]:
    """Train the site's encoder and projector towards a slowly following copy of them.

    The copy lives in the site's memory where it is kept, and how far it followed does in any case.
    Gives the spreads of the embeddings, and of the features they are made from, for the record: the
    projector's norms hold embeddings apart even where features have become alike. Running
    statistics stay as they are: views look unlike the images that will be predicted.
    """
    if min(site.training.batch, len(site.data.train)) < 2:
        log.warning(
            "site %s, round %d: no enhancement, which compares the images of a batch, and there is "
            "one alone",
            *(site.info.name, site.round),
        )
        return {}
    online = nn.ModuleList((site.net.encoder, site.net.get_submodule(PROJECTOR)))
    target = copy.deepcopy(online).requires_grad_(False).train()
    kept = group(site.memory, TARGET)
    for name, parameter in target.named_parameters():
        parameter.copy_(kept.get(name, parameter))
    began, aimed = _flat(online), _flat(target)
    rng = torch_generator(site.seed, site.info.name, site.round, site.stage, "views")
    spreads: list[tuple[float, float]] = []

    def loss(site: Site, batch: Batch) -> Tensor:  # noqa: ARG001
        if spreads:  # one step was taken since
            follow(target, online, how.decay)
        both = torch.cat([views.draw(batch.images, rng) for _ in range(2)])
        features, embedded = _embedded(online, both)
        with torch.no_grad():
            _, aims = _embedded(target, both)
        spreads.append((spread(embedded.detach()), spread(features.detach())))
        return disagreement(embedded, aims)

    own_rate = {"learning_rate": how.rate * site.training.learning_rate}
    with site.quiet():
        site.fit(
            loss,
            only=under(site.net, "encoder", PROJECTOR),
            steps=round(how.share * site.steps),
            training=site.training.model_copy(update=own_rate),
            stream="enhance",
        )
    if spreads:
        follow(target, online, how.decay)
        _note(site, _flat(online), began, aimed, _flat(target))
    if how.target == "kept":
        named = target.named_parameters()
        site.memory.update({f"{TARGET}/{name}": each.detach().clone() for name, each in named})
    return _watched(site, spreads)


def enhanced(site: Site) -> dict[str, float]:
    """What the last enhancement did at a site: how far it moved the encoder and its target."""
    return {name: float(value) for name, value in group(site.memory, ENHANCED).items()}


def disagreement(embedded: Tensor, aims: Tensor) -> Tensor:
    """How far the embeddings of two views (2B×D, the second ones behind) are from aims crosswise.

    The mean over images of |o − t'|² + |o' − t|², all of length one: 0 to 8.
    """
    ahead, behind = aims.chunk(2)
    online, target = normalize(embedded.float()), normalize(torch.cat((behind, ahead)).float())
    return 2 * (online - target).square().sum(1).mean()


def spread(embedded: Tensor) -> float:
    """How evenly embeddings (N×D) lie on the sphere: about 1 if they do, 0 if all are alike."""
    units = normalize(embedded.float())
    return float(units.std(dim=0, correction=0).mean() * units.shape[1] ** 0.5)


@torch.no_grad()
def follow(target: nn.Module, online: nn.Module, decay: float) -> None:
    """Move the target's parameters towards the online ones, keeping `decay` of themselves."""
    for aim, own in zip(target.parameters(), online.parameters(), strict=True):
        aim.lerp_(own, 1 - decay)


def _note(site: Site, online: Tensor, began: Tensor, aimed: Tensor, target: Tensor) -> None:
    """Remember the way of the encoder relative to its length, and how much of it the target went.

    A target that is kept has come from further behind: what is told is how far that is.
    """
    length = online.norm().clamp(min=1e-12)
    notes = {MOVED: (online - began).norm() / length}
    if torch.equal(aimed, began):
        way = (online - aimed).norm().clamp(min=1e-12)
        notes[FOLLOWED] = 1 - (online - target).norm() / way
    else:
        notes[BEHIND] = (online - target).norm() / length
    for name in (MOVED, FOLLOWED, BEHIND):
        site.memory.pop(f"{ENHANCED}/{name}", None)
    site.memory.update({f"{ENHANCED}/{name}": value for name, value in notes.items()})


def _flat(modules: nn.Module) -> Tensor:
    return torch.cat([each.detach().flatten() for each in modules.parameters()])


def _embedded(modules: nn.Module, images: Tensor) -> tuple[Tensor, Tensor]:
    """The deepest features, pooled over each image, and the embeddings made from them."""
    encoder, project = modules.children()
    deepest = encoder(images)[-1]
    return deepest.mean((2, 3)), project(deepest)


def _watched(site: Site, spreads: list[tuple[float, float]]) -> dict[str, float]:
    if not spreads:
        return {}
    late = spreads[-max(1, round(LATE * len(spreads))) :]
    found = dict(zip(SPREADS, torch.tensor(late).mean(0).tolist(), strict=True))
    for (name, value), least in zip(found.items(), COLLAPSED, strict=True):
        if value < least:
            log.warning(
                "site %s, round %d: all images look nearly the same to the encoder (%s %.4f), so "
                "the enhancement teaches nothing; try a smaller enhancement.rate or share",
                *(site.info.name, site.round, name, value),
            )
    return found
