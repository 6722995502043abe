"""FedSoup: own and past shared models averaged (Chen et al., MICCAI 2023, arXiv 2307.10507)."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from pydantic import Field

from polyclinic.federation.message import Message
from polyclinic.federation.method import Method
from polyclinic.federation.mixing import mix
from polyclinic.federation.scoring import validation_dice
from polyclinic.federation.site import Site
from polyclinic.federation.weights import Weights
from polyclinic.networks.contract import Segmenter
from polyclinic.networks.parts import Names, everything

POOL, SIZE = "pool", "pool size"


@dataclass(frozen=True)
class FedSoup(Method):
    """FedAvg for `warm_up` of the rounds; then a site averages its model with a pool of past ones.

    The shared model of a round joins the pool where the average has a better validation Dice with
    it. The average is what the site sends and uses.
    """

    warm_up: Annotated[float, Field(ge=0, le=1)] = 0.75
    """Share of the rounds that are FedAvg's, 0 to 1; 1 is FedAvg."""

    by_rounds: ClassVar[bool] = True
    shared_memory: ClassVar[frozenset[str]] = frozenset({POOL})  # sent models are among them

    def keeps(self, net: Segmenter) -> Names:
        """Everything: a site uses its own average."""
        return everything(net)

    def receive(self, site: Site) -> None:
        """Take up the shared weights, where there will be something to judge the pool by."""
        if self.warm_up < 1 and not len(site.data.scorable("val", site.task.regions)):
            raise ValueError(
                f"FedSoup needs validation cases with masks at site {site.info.name}: they decide "
                "what joins its pool; give data.split a second share above 0, or take fedavg"
            )
        super().receive(site)

    def train(self, site: Site) -> None:
        """Learn; in the last rounds then average with the pool."""
        received = site.take(site.shared)
        site.fit(self.loss)
        if site.round > self.warm_up * site.rounds:
            self.average(site, received)

    def average(self, site: Site, received: Weights) -> None:
        """Take the better average: with the pool alone, or with what was received as well."""
        own, size = site.take(site.shared), int(site.memory.get(SIZE, torch.zeros(())))
        pool = Weights(own.layout, site.memory.get(POOL, own.flat))
        without = mix({"own": own, "pool": pool}, [1 / (size + 1), size / (size + 1)])
        larger = mix({"new": received, "pool": pool}, [1 / (size + 1), size / (size + 1)])
        grown = mix({"own": own, "pool": larger}, [1 / (size + 2), (size + 1) / (size + 2)])
        site.load(without)
        before = validation_dice(self, site)
        site.load(grown)
        if validation_dice(self, site) > before:
            pool, size = larger, size + 1
        else:
            site.load(without)
        site.memory.update({POOL: pool.flat, SIZE: torch.tensor(float(size))})

    def finalize(self, site: Site) -> Message:
        """Use the site's own average, or the shared weights where it has made none."""
        if POOL not in site.memory:
            self.receive(site)
        return Message()
