"""IOP-FL's test-time routing: a site that took no part learns which model is right for its images.

It learns from the images that are to be predicted, without their masks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from polyclinic.config import AugmentationSettings, TrainingSettings
from polyclinic.data.batches import steps_per_epoch
from polyclinic.data.cases import Batch
from polyclinic.federation.site import Site
from polyclinic.losses.unlabelled import border, entropy, steadiness
from polyclinic.networks.routing import Gates, adaptable, routed
from polyclinic.seeds import derive

Weight = Annotated[float, Field(ge=0)]


@dataclass(frozen=True)
class Routing:
    """How a mixture of models is fitted to images without labels: passes, rate, losses, gates."""

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
