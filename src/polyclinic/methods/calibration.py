"""IGC: calibration guided by inconsistency, a finishing step from FedDP for any method."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from polyclinic.config import TrainingSettings
from polyclinic.data.cases import Batch
from polyclinic.federation.diagnosing import NOTED
from polyclinic.federation.message import Message, models_in
from polyclinic.federation.method import DISCLOSED, Method, Stage, plain_loss, silent
from polyclinic.federation.optimizing import after_rounds
from polyclinic.federation.server import Server
from polyclinic.federation.site import Site
from polyclinic.losses import LOSSES
from polyclinic.losses.inconsistency import Inconsistency, Mean, guided_entropy, inconsistency
from polyclinic.losses.marginal import grouped, summed
from polyclinic.networks.contract import Segmenter
from polyclinic.runs import SiteInfo

GUIDED = "guided share"


@dataclass(frozen=True)
class IGC:
    """After the last round each site trains further, most where the sites' models disagree.

    Sites disclose what their models differ in, once.
    """

    epochs: Annotated[int, Field(ge=0)] = 20
    """Passes over the site's images."""
    iterations: Annotated[int, Field(ge=0)] | None = None
    """Steps, in place of epochs."""
    rate: Annotated[float, Field(gt=0)] = 0.1
    """Learning rate over the study's."""
    weight: Annotated[float, Field(ge=0)] = 1.0
    """Weight of the guided loss; 0 is plain fine-tuning, and nothing is disclosed."""
    loss: Literal["study", "ce", "dice", "ce+dice"] = "study"
    """Loss of the labels while calibrating; the released code has Dice alone."""
    mean: Mean = "pixels"
    """Mean of the guided loss: over all pixels, or over the disagreement, which is often rare."""
    inconsistency: Inconsistency = "distance"
    """How disagreement is measured: the paper's distance or the code's deviation."""
    relative: bool = True
    """Divide the disagreement by its largest value in the batch."""

    def stages(self, method: Method) -> tuple[Stage, ...]:
        """Disclosing and calibrating; without a weight nobody needs another's model."""
        calibrate = partial(self.calibrate, method)
        if not self.weight:
            return (Stage("calibrate", silent, calibrate, give_back, finalizes=True),)
        return (
            Stage(
                "disclose",
                fingerprints,
                partial(disclose, method),
                keep,
                finalizes=True,
                discloses=True,
            ),
            Stage("calibrate", hand_on, calibrate, give_back, finalizes=True),
        )

    def calibrate(self, method: Method, site: Site) -> Message:
        """Train the model that the site uses, guided by all models at rest."""
        steps = site.steps_of(iterations=self.iterations, epochs=self.epochs)
        with method.in_use(site):
            models = models_in(site.message.extras, DISCLOSED)
            others = [site.twin(model) for model in models.values()]
            training = after_rounds(site.training, self.rate)
            if others:
                self._fit_guided(method, [site.twin({}), *others], site, steps, training)
            else:
                site.fit(self.plain, steps=steps, training=training)
        return Message()

    def _fit_guided(
        self,
        method: Method,
        models: list[Segmenter],
        site: Site,
        steps: int,
        training: TrainingSettings,
    ) -> None:
        shares: list[Tensor] = []

        def loss(site: Site, batch: Batch) -> Tensor:
            plain, guided = self.terms(method, models, site, batch)
            whole = plain + guided
            shares.append((guided / whole).detach())
            return whole

        site.fit(loss, steps=steps, training=training)
        if shares:
            site.memory[f"{NOTED}/{GUIDED}"] = torch.stack(shares).mean()

    def plain(self, site: Site, batch: Batch) -> Tensor:
        """Labels alone."""
        if self.loss == "study":
            return plain_loss(site, batch)
        return self._labelled(site, site.net(batch.images), batch)

    def _labelled(self, site: Site, logits: Tensor, batch: Batch) -> Tensor:
        if self.loss == "study":
            return site.task_loss(logits, batch)
        own = site.marginal(LOSSES[self.loss])
        return own(logits, batch.labels) + site.stand_ins(logits, batch)

    def terms(
        self, method: Method, models: list[Segmenter], site: Site, batch: Batch
    ) -> tuple[Tensor, Tensor]:
        """The loss of the labels, and that of the labels where the models disagree."""
        # Judges predict as they are scored: in float32, whatever the training's precision is.
        with torch.no_grad(), torch.autocast(site.device.type, enabled=False):
            maps = [method.predict(replace(site, net=each), batch.images) for each in models]
        logits, labels, opinions = site.net(batch.images), batch.labels, torch.stack(maps)
        plain = self._labelled(site, logits, batch)
        for groups in site.data.groups:
            logits, labels = grouped(logits, labels, groups)
            opinions = summed(opinions, groups)
        guide = inconsistency(opinions, self.inconsistency, relative=self.relative)
        probabilities = logits.float().softmax(1)
        return plain, self.weight * guided_entropy(probabilities, labels, guide, self.mean)


def fingerprints(server: Server, info: SiteInfo) -> Message:  # noqa: ARG001
    """A number for each shared tensor, by which a site sees where its own is another."""
    return Message(numbers={name: fingerprint(each) for name, each in server.weights.items()})


def fingerprint(tensor: Tensor) -> float:
    """A whole number that tensors with other values do not have."""
    values = tensor.detach().cpu().contiguous().numpy().tobytes()
    return float(int.from_bytes(blake2b(values, digest_size=6).digest(), "big"))


def disclose(method: Method, site: Site) -> Message:
    """What of the model in use is not as the server has it: all that is private, and no more."""
    with method.in_use(site):
        own = site.take(method.predicts_with(site.net))
    common = site.message.numbers
    differing = [name for name in own if common.get(name) != fingerprint(own[name])]
    return Message(extras={f"{DISCLOSED}/{name}": own[name].clone() for name in differing})


def keep(server: Server, replies: Mapping[str, Message]) -> None:
    """Remember what each site disclosed, until it is given back.

    Where one did not differ from the server but another did, it is as the server has it. Who holds
    back what only the sites have is no judge.
    """
    disclosed = {key.partition("/")[2] for reply in replies.values() for key in reply.extras}
    for site, reply in replies.items():
        own = {
            name: reply.extras.get(f"{DISCLOSED}/{name}", server.weights.get(name))
            for name in disclosed
        }
        model = {name: tensor for name, tensor in own.items() if tensor is not None}
        if len(model) == len(disclosed):
            server.memory.update(
                {f"{DISCLOSED}/{site}/{name}": t.clone() for name, t in model.items()}
            )


def hand_on(server: Server, info: SiteInfo) -> Message:
    """To a site, what all others disclosed."""
    return Message(extras=server.others(DISCLOSED, info))


def give_back(server: Server, replies: Mapping[str, Message]) -> None:  # noqa: ARG001
    """Forget what was disclosed."""
    server.forget(DISCLOSED)
