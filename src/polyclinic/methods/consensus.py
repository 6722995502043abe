"""Consensus labels: what the decoders of all sites agree on stands in for missing labels.

A method of this project. A site's kind of weak label makes its model err in one direction: blocks
and boxes towards too much, points and scribbles towards too little. Where models that learned from
different kinds are sure together, these errors have met.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from polyclinic.data.batches import in_order
from polyclinic.data.cases import Batch
from polyclinic.federation.diagnosing import MOST, agreement, kept
from polyclinic.federation.message import Message, models_in
from polyclinic.federation.method import Method, Stage
from polyclinic.federation.server import Server
from polyclinic.federation.site import Site
from polyclinic.federation.weights import group
from polyclinic.losses import soft_dice
from polyclinic.masks import UNLABELLED
from polyclinic.methods.second_decoder import MAIN, names_in
from polyclinic.networks.contract import Segmenter, likeliest
from polyclinic.networks.two_branches import branches
from polyclinic.runs import SiteInfo

DECODER = "decoder"  # extras: every site's own, by number
NOTED = "consensus"  # a group of a site's memory


@dataclass(frozen=True)
class ConsensusLabels(Method):
    """FedAvg whose sites also learn from pixels that the decoders of all sites agree on.

    After the first rounds a message brings every site's last decoder and head beside the shared
    weights. On the received encoder their mean prediction labels the pixels of which it is sure
    and that have no label yet. Sites with full masks learn from these alone.
    """

    title: ClassVar[str] = "Consensus labels"

    weight: Annotated[float, Field(ge=0)] = 0.5
    """Weight of the Dice loss on consensus labels; 0 is FedAvg."""
    confidence: Annotated[float, Field(ge=0, lt=1)] = 0.8
    """Probability that the mean prediction must have for a pixel to get a label."""
    warm_up: Annotated[int, Field(ge=1)] = 2
    """Rounds without consensus labels at first."""

    def finalizing(self) -> Stage:
        """Taking up the shared weights needs no other decoders."""
        return replace(super().finalizing(), message=super().message)

    def message(self, server: Server, info: SiteInfo) -> Message:
        """The shared weights and, after the warm-up, the last decoder of every site."""
        plain = super().message(server, info)
        if not self.weight or server.round <= self.warm_up:
            return plain
        layout = server.weights.pick(names_in(server.weights, MAIN)).layout
        flats = [server.memory[key] for key in sorted(server.memory) if key.startswith(DECODER)]
        extras = {
            f"{DECODER}/{number}/{name}": tensor
            for number, flat in enumerate(flats)
            for name, tensor in type(server.weights)(layout, flat).items()
        }
        return replace(plain, extras=extras)

    def combine(self, server: Server, replies: Mapping[str, Message]) -> None:
        """The mean of the replies; each site's decoder is remembered as well."""
        super().combine(server, replies)
        names = names_in(server.weights, MAIN)
        for site, reply in replies.items():
            server.memory[f"{DECODER}/{site}"] = reply.weights.pick(names).flat.clone()

    def train(self, site: Site) -> None:
        """Learn from labels and, where they are weak, from what all decoders agree on."""
        decoders = [] if site.info.kind == "mask" else received_decoders(site)
        site.fit(partial(self.agreed_loss, decoders) if decoders else self.loss)
        for name in group(site.memory, NOTED):
            del site.memory[f"{NOTED}/{name}"]
        for name, value in (self.notes(decoders, site) if decoders else {}).items():
            if math.isfinite(value):
                site.memory[f"{NOTED}/{name}"] = torch.tensor(value)

    def diagnose(self, site: Site, batch: Batch) -> dict[str, float]:  # noqa: ARG002
        """What consensus labels were like at the site's last visit: it keeps no decoders."""
        return {name: float(value) for name, value in group(site.memory, NOTED).items()}

    def agreed_loss(self, decoders: list[Segmenter], site: Site, batch: Batch) -> Tensor:
        """The task's loss, and the Dice loss against the consensus."""
        label = self.label(decoders, batch)
        logits, second = branches(site.net, batch.images)
        loss = site.task_loss(logits, batch, second=second)
        return loss + self.weight * soft_dice(logits.softmax(1), label)

    def label(self, decoders: list[Segmenter], batch: Batch) -> Tensor:
        """The consensus on what the camera saw."""
        label = consensus(decoders, batch, self.confidence)
        return label if batch.view is None else label.masked_fill(~batch.view, UNLABELLED)

    @torch.no_grad()
    def notes(self, decoders: list[Segmenter], site: Site) -> dict[str, float]:
        """What the labels of a few training images are like, among pixels that have no other."""
        few = site.data.train.select(range(min(MOST, len(site.data.train))))
        site.net.eval()
        (batch,) = in_order(few, batch=MOST, device=site.device)
        label, predicted = self.label(decoders, batch), likeliest(site.net(batch.images))
        free, given = batch.labels == UNLABELLED, label != UNLABELLED
        objects = label.masked_fill(~given, 0)
        masks = few.masks.to(site.device).masked_fill(~given, UNLABELLED)
        return {
            "consensus labels": float(given[free].float().mean()),
            "pseudo label keeps": kept(objects, predicted.masked_fill(~free, 0)),
            **agreement(objects, masks),
        }


def received_decoders(site: Site) -> list[Segmenter]:
    """The received network at rest with the decoder of each site in turn."""
    models = models_in(site.message.extras, DECODER)
    return [site.twin(each) for each in models.values()]


@torch.no_grad()
def consensus(decoders: list[Segmenter], batch: Batch, confidence: float) -> Tensor:
    """The classes (bytes, B×H×W) of which the mean prediction of all is sure, else 255.

    Pixels with a label of their own get none.
    """
    images = batch.images.to(memory_format=torch.channels_last)
    features = decoders[0].encoder(images)
    said = [net.head(net.decoder(features)[-1]).softmax(1) for net in decoders]
    sure, label = torch.stack(said).mean(0).max(1)
    unknown = (sure < confidence) | (batch.labels != UNLABELLED)
    return label.to(torch.uint8).masked_fill(unknown, UNLABELLED)
