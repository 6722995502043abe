"""MetaFed: knowledge passed round a ring (Chen et al., IEEE TNNLS 2023, arXiv 2206.08516)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import mse_loss

from polyclinic.config import TrainingSettings
from polyclinic.data.cases import Batch
from polyclinic.federation.message import Message
from polyclinic.federation.method import Method, Stage, ignore, plain_loss, silent, stay
from polyclinic.federation.optimizing import after_rounds
from polyclinic.federation.scoring import validation_dice
from polyclinic.federation.server import Server
from polyclinic.federation.site import Site
from polyclinic.networks.contract import Segmenter
from polyclinic.networks.parts import Names, everything, nonempty, norms

SKILLED = "skilled"


@dataclass(frozen=True)
class MetaFed(Method):
    """No average: each site learns from its neighbour's model, copying it or distilling from it.

    A site whose validation Dice has once passed `skilled_above` keeps its model and distils from
    the neighbour's features; any other starts from the neighbour's model. At the end every site
    learns once more from the last site's model, as strongly as that one is better than its own.
    Budgets are in rounds.
    """

    one_branch: ClassVar[bool] = True

    distillation: Annotated[float, Field(ge=0)] = 1.0
    """Largest weight of the distillation loss."""
    skilled_above: float = 0.6
    """Validation Dice above which a site keeps its own model."""
    useful_above: float = 0.5
    """Validation Dice from which even a model no better than the own one is learned from."""
    private_norms: bool = False
    """Keep norm layers when a neighbour's model is copied."""
    alone: Annotated[float, Field(ge=0)] = 1.0
    """Rounds that each site first trains alone."""
    personal: Annotated[float, Field(ge=0)] = 1.0
    """Rounds that each site trains after the ring."""

    paper_weighting: ClassVar[str] = ""
    mean_only: ClassVar[str] = (
        "it hands every site's model on to the next, and no rule stands between them"
    )

    def keeps(self, net: Segmenter) -> Names:
        """Everything: each site has a model of its own."""
        return everything(net)

    def before(self) -> tuple[Stage, ...]:
        """Every site trains alone."""
        return (Stage("alone", silent, self.train_alone, self.pass_on),)

    def each_round(self) -> tuple[Stage, ...]:
        """One turn of the ring."""
        return (Stage("fit", self.message, self.visit, self.pass_on, ring=True),)

    def finalizing(self) -> Stage:
        """Each site uses the model it has."""
        return Stage("finalize", silent, stay, ignore, finalizes=True)

    def after(self) -> tuple[Stage, ...]:
        """Every site learns from the last site's model."""
        return (Stage("personalise", self.message, self.personalise, ignore, finalizes=True),)

    def pass_on(self, server: Server, replies: Mapping[str, Message]) -> None:
        """The server relays the model of the site that worked last; the start, if none did."""
        for reply in replies.values():
            server.weights = reply.weights if reply.weights else server.weights

    def train_alone(self, site: Site) -> Message:
        """Train from the common start; the last site's model opens the ring."""
        site.fit(plain_loss, steps=round(self.alone * site.steps))
        self._assess(site)
        last = site.info.index == len(site.sites) - 1
        return Message(site.take(site.shared)) if last else Message()

    def receive(self, site: Site) -> None:
        """Start from the neighbour's model, unless the site's own is good enough."""
        if not self._skilled(site):
            names = site.message.weights.names
            if self.private_norms:
                reason = "MetaFed with private_norms keeps BatchNorm layers at the site"
                names -= nonempty(norms(site.net), site.net, reason)
            site.load(site.message.weights.pick(names))

    def train(self, site: Site) -> None:
        """Learn, from the neighbour's features too where the site kept its own model."""
        self._distil(site, self.distillation if self._skilled(site) else 0.0, site.steps)
        self._assess(site)

    def personalise(self, site: Site) -> Message:
        """Learn once more, from the last site's model as strongly as it is better."""
        own = validation_dice(self, site)
        before = site.weights.copy()
        site.load(site.message.weights)
        theirs = validation_dice(self, site)
        site.load(before)
        weight = personal_weight(self.distillation, theirs, own, self.useful_above)
        steps = round(self.personal * site.steps)
        self._distil(site, weight, steps, training=after_rounds(site.training))
        return Message()

    def _distil(
        self, site: Site, weight: float, steps: int, training: TrainingSettings | None = None
    ) -> None:
        if not weight:
            site.fit(plain_loss, steps=steps, training=training)
            return
        teacher = site.twin(site.message.weights)

        def loss(site: Site, batch: Batch) -> Tensor:
            return distillation_loss(site, batch, teacher, weight)

        site.fit(loss, steps=steps, training=training)

    def _assess(self, site: Site) -> None:
        if not self._skilled(site) and validation_dice(self, site) > self.skilled_above:
            site.memory[SKILLED] = torch.ones(())

    def _skilled(self, site: Site) -> bool:
        return SKILLED in site.memory


def distillation_loss(site: Site, batch: Batch, teacher: Segmenter, weight: float) -> Tensor:
    """The supervised loss and the mean squared distance to the teacher's encoder features."""
    features = site.net.encoder(batch.images)
    logits = site.net.head(site.net.decoder(features)[-1])
    taught = teacher.encoder(batch.images)
    distance = torch.stack([mse_loss(f, t) for f, t in zip(features, taught, strict=True)]).mean()
    return site.task_loss(logits, batch) + weight * distance


def personal_weight(distillation: float, theirs: float, own: float, useful_above: float) -> float:
    """How strongly to learn from another model: 0 to `distillation`, by how much better it is."""
    if theirs <= own and theirs < useful_above:
        return 0.0
    return distillation * (10 ** min(1.0, 5 * (theirs - own)) / 10)
