"""Centralized training: all images in one place, what a federation is measured against."""

from dataclasses import dataclass
from typing import ClassVar

from polyclinic.federation.method import Method
from polyclinic.federation.site import Site


@dataclass(frozen=True)
class Centralized(Method):
    """One model trained on the images of all sites together; no federation could do this."""

    equal_compute: bool = True
    """Take as many steps as all sites together, not as one site."""

    pools: ClassVar[bool] = True
    paper_weighting: ClassVar[str] = ""

    def train(self, site: Site) -> None:
        """Learn from the pooled images."""
        by_iterations = site.training.iterations is not None
        factor = len(site.sites) if self.equal_compute and by_iterations else 1
        site.fit(self.loss, steps=site.steps * factor)
