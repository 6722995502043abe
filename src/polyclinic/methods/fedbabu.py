"""FedBABU: a body under a head at rest, then tuning (Oh et al., ICLR 2022, arXiv 2106.06042)."""

from dataclasses import dataclass, field, replace
from typing import ClassVar

from polyclinic.federation.method import Method, Stage
from polyclinic.federation.site import Site
from polyclinic.methods.finetune import FineTune
from polyclinic.networks.contract import Segmenter
from polyclinic.networks.parts import Names, everything, part


@dataclass(frozen=True)
class FedBABU(Method):
    """Only the body learns and travels; the head rests as it began, the same at every site.

    After the last round each site tunes its model; `tuning` says how long, and what of it.
    """

    tuning: FineTune = field(default_factory=FineTune)
    """How the sites tune their models after the last round."""

    paper_weighting: ClassVar[str] = "uniform"
    late: ClassVar[frozenset[str]] = frozenset({"tuning"})

    def shares(self, net: Segmenter) -> Names:
        """All but the head, which is everywhere the same until it is tuned."""
        return everything(net) - self.head(net)

    def head(self, net: Segmenter) -> Names:
        """What rests during the rounds."""
        return part(net, "head")

    def train(self, site: Site) -> None:
        """Learn with the head at rest."""
        body = everything(site.net) - self.head(site.net)
        site.fit(self.loss, only=body, steps=None if body else 0)

    def after(self) -> tuple[Stage, ...]:
        """Each site tunes its model on its own."""
        return tuple(replace(stage, name="tune") for stage in self.tuning.stages(self))
