"""FedGKD: past shared models teach the sites (Yao et al., 2021, arXiv 2107.00051)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import kl_div

from polyclinic.data.cases import Batch, with_masks
from polyclinic.federation.message import Message, models_in
from polyclinic.federation.method import Method, Stage
from polyclinic.federation.mixing import mix
from polyclinic.federation.scoring import validation_loss
from polyclinic.federation.server import Server
from polyclinic.federation.site import Site
from polyclinic.federation.weights import Weights, group
from polyclinic.networks.contract import Segmenter
from polyclinic.networks.two_branches import branches
from polyclinic.runs import SiteInfo

PAST, TEACHER = "past", "teacher"

Teachers = list[tuple[float, Segmenter]]  # each with its share of the teaching


@dataclass(frozen=True)
class FedGKD(Method):
    """FedAvg whose sites also learn from the last `models` shared models.

    Their mean is the teacher, or ("vote") each is one, heard by how well it does on the site's
    validation cases. In the first round there is none.
    """

    weight: Annotated[float, Field(ge=0)] = 0.1
    """Weight of the distillation; 0 is FedAvg."""
    models: Annotated[int, Field(ge=1)] = 5
    """How many past shared models teach; 1 is the one received."""
    temperature: Annotated[float, Field(gt=0)] = 1.0
    """Divisor of the logits in the distillation."""
    teacher: Literal["mean", "vote"] = "mean"
    """One teacher, the mean of the models, or each by its vote of validation losses."""

    paper_weighting: ClassVar[str] = "uniform"

    def finalizing(self) -> Stage:
        """Taking up the shared weights needs no teacher."""
        return replace(super().finalizing(), message=super().message)

    def message(self, server: Server, info: SiteInfo) -> Message:  # noqa: ARG002
        """The shared weights and the teachers, where they are others than these."""
        past = past_models(server)
        if not self.weight or len(past) < 2:
            return Message(server.weights)
        if self.teacher == "mean":
            numbered = {f"{age:03d}": each for age, each in enumerate(past)}
            past = [mix(numbered, [1 / len(past)] * len(past))]
        extras = {
            f"{TEACHER}/{number}/{name}": tensor
            for number, each in enumerate(past)
            for name, tensor in each.items()
        }
        return Message(server.weights, extras=extras)

    def combine(self, server: Server, replies: Mapping[str, Message]) -> None:
        """The mean of the replies, which is remembered as long as it may teach."""
        super().combine(server, replies)
        past = [*past_models(server), server.weights][-self.models :]
        server.memory.update({f"{PAST}/{n:03d}": each.flat.clone() for n, each in enumerate(past)})

    def train(self, site: Site) -> None:
        """Learn from labels and, after the first round, from the teachers."""
        if self.teacher == "vote" and not len(with_masks(site.data.val)):
            raise ValueError(
                f"FedGKD lets its teachers be judged by validation cases with masks, and site "
                f"{site.info.name} has none; teacher = 'mean' needs none"
            )
        taught = self.weight and site.round > 1
        site.fit(partial(self.taught_loss, self.teachers(site)) if taught else self.loss)

    def taught_loss(self, teachers: Teachers, site: Site, batch: Batch) -> Tensor:
        """The supervised loss and the distance to what the teachers say."""
        logits, second = branches(site.net, batch.images)
        loss = site.task_loss(logits, batch, second=second)
        for share, teacher in teachers:
            with torch.no_grad():
                said = teacher(batch.images)
            loss = loss + self.weight * share * teaching(logits, said, self.temperature)
        return loss

    def teachers(self, site: Site) -> Teachers:
        """The models at rest that teach in this round: the one received, where no other came."""
        models = models_in(site.message.extras, TEACHER)
        twins = [site.twin(each) for each in models.values()] or [site.twin({})]
        if len(twins) == 1:
            return [(1.0, twins[0])]
        losses = torch.tensor([validation_loss(site, each) for each in twins])
        return list(zip((-losses).softmax(0).tolist(), twins, strict=True))


def past_models(server: Server) -> list[Weights]:
    """The shared weights of the last rounds, oldest first."""
    past = group(server.memory, PAST)
    return [Weights(server.weights.layout, past[number]) for number in sorted(past)]


def teaching(logits: Tensor, said: Tensor, temperature: float = 1.0) -> Tensor:
    """Give T² · KL(teacher ‖ student), of classes at temperature T, as the mean over pixels.

    Logits are batch × classes × height × width; the teacher's get no gradient.
    """
    student = (logits.float() / temperature).log_softmax(1)
    teacher = (said.detach().float() / temperature).log_softmax(1)
    divergence = kl_div(student, teacher, reduction="none", log_target=True).sum(1)
    return temperature**2 * divergence.mean()
