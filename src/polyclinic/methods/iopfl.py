"""IOP-FL: models inside and outside a federation (Jiang et al., TMI 2023, arXiv 2204.08467)."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import max_pool2d, mse_loss

from polyclinic.config import AugmentationSettings, TrainingSettings
from polyclinic.data.batches import steps_per_epoch
from polyclinic.data.cases import Batch
from polyclinic.federation.message import Message
from polyclinic.federation.method import Method
from polyclinic.federation.mixing import mix
from polyclinic.federation.site import Site
from polyclinic.federation.weights import Weights
from polyclinic.networks.routing import Gates, adaptable, routed
from polyclinic.seeds import derive

TRAJECTORY = "trajectory"
WINDOW = 21  # pixels, side of the square in which a border is looked for

Weight = Annotated[float, Field(ge=0)]


@dataclass(frozen=True)
class Routing:
    """How a site that took no part learns which models are right for its images, without masks."""

    epochs: Annotated[int, Field(ge=0)] = 10
    """Passes over the images to be predicted; 0 is without learning."""
    rate: Annotated[float, Field(gt=0)] = 0.001
    """Learning rate (Adam)."""
    entropy: Weight = 10.0
    """Weight of the predictions' entropy; 0 is without it."""
    consistency: Weight = 0.1
    """Weight of how turning and noise change predictions; 0 is without it."""
    smoothness: Weight = 1e-6
    """Weight of the width of predicted borders (L2 norm); 0 is without it."""
    gates: Gates = "independent"
    """Whether the models count each on its own or by shares that sum to one."""

    def adapted(self, site: Site, experts: Sequence[Mapping[str, Tensor]]) -> Site:
        """The site with a network that routes between the experts, fitted to its test images."""
        with torch.random.fork_rng():
            torch.manual_seed(derive(site.seed, site.info.name, "routing"))
            net = routed(site.net, experts, self.gates)
        images = replace(site.data, train=site.data.test)
        guest = replace(site, net=net, data=images, stage="route", round=1, rounds=1, fits=[])
        steps = self.epochs * steps_per_epoch(len(images.train), site.training.batch)
        guest.fit(self.loss, only=adaptable(net), steps=steps, training=self.training(site))
        return guest

    def training(self, site: Site) -> TrainingSettings:
        """Adam at a constant rate, on the images as they are."""
        still = AugmentationSettings(flips=False, rotation=0.0, quarter_turns=False)
        return site.training.model_copy(
            update={
                "optimizer": "adam",
                "learning_rate": self.rate,
                "weight_decay": 0.0,
                "schedule": "constant",
                "keep_optimizer": False,
                "augmentation": still,
            }
        )

    def loss(self, site: Site, batch: Batch) -> Tensor:
        """Be certain, steady and smooth; labels are not looked at."""
        logits = site.net(batch.images)
        return (
            self.entropy * entropy(logits)
            + self.consistency * steadiness(site.net, batch.images, logits)
            + self.smoothness * border(logits)
        )


@dataclass(frozen=True)
class IOPFL(Method):
    """FedAvg whose sites use the moving average of what they trained.

    A site that took no part routes its images between the sites' models and the shared one.
    """

    past: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Share of the old average in the moving average; 0 uses the model as last trained."""
    outside_routing: Routing = field(default_factory=Routing)
    """How a site that took no part routes between the models."""

    title: ClassVar[str] = "IOP-FL"

    def send(self, site: Site) -> Message:
        """The weights as trained, which also move the trajectory."""
        site.remember(TRAJECTORY)  # at first it is what was trained, and the average the same
        old = Weights.pack({n: site.memory[f"{TRAJECTORY}/{n}"] for n in site.weights})
        moved = mix({"old": old, "trained": site.weights}, [self.past, 1 - self.past])
        site.memory.update({f"{TRAJECTORY}/{n}": tensor for n, tensor in moved.items()})
        return super().send(site)

    def finalize(self, site: Site) -> Message:
        """Who never trained begins its trajectory with the weights received."""
        self.receive(site)
        site.remember(TRAJECTORY)
        return Message()

    def in_use(self, site: Site) -> AbstractContextManager[None]:
        """The trajectory."""
        return site.using(TRAJECTORY)

    def outside(self, site: Site, models: Mapping[str, Weights]) -> Site:
        """Route between the sites' trajectories and the shared model."""
        return self.outside_routing.adapted(site, [*models.values(), site.weights.copy()])


def entropy(logits: Tensor) -> Tensor:
    """Give the mean entropy of the classes over all pixels."""
    return -(logits.softmax(1) * logits.log_softmax(1)).sum(1).mean()


def steadiness(net: Callable[[Tensor], Tensor], images: Tensor, logits: Tensor) -> Tensor:
    """Give the mean squared distance to what the network says of the images turned and noisy.

    Each batch is turned by quarters, mirrored or both, as drawn from torch's own generator.
    """
    turns, mirrored = (int(each) for each in torch.randint(0, 4, (2,)))
    noisy = images + 0.1 * torch.randn_like(images)
    moved = torch.rot90(noisy, turns, (2, 3))
    moved = moved.flip(3) if mirrored % 2 else moved
    said = net(moved).softmax(1)
    said = said.flip(3) if mirrored % 2 else said
    return mse_loss(torch.rot90(said, -turns, (2, 3)), logits.softmax(1))


def border(logits: Tensor) -> Tensor:
    """Give the length (L2 norm) of what is near the foreground, and not in it."""
    foreground = logits.softmax(1)[:, 1:].sum(1, keepdim=True)
    grown = max_pool2d(foreground, WINDOW, stride=1, padding=WINDOW // 2)
    return (grown - foreground).norm()
