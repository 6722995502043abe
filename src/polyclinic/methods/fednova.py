"""FedNova: changes normalized by the work behind them (Wang et al., NeurIPS 2020, 2007.07481)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from polyclinic.federation.message import Message
from polyclinic.federation.method import Method
from polyclinic.federation.mixing import mix
from polyclinic.federation.server import Server
from polyclinic.federation.site import Site

WORK = "work"  # the number in a reply


@dataclass(frozen=True)
class FedNova(Method):
    """FedAvg in which a site that took more steps does not count for more.

    It makes a difference where sites take different numbers of steps: training.epochs.
    """

    mean_only: ClassVar[str] = (
        "each reply is weighted by the steps behind it, as its site tells them"
    )

    def send(self, site: Site) -> Message:
        """The weights, and how far a constant gradient would have taken them."""
        momentum = site.training.momentum if site.training.optimizer == "sgd" else 0.0
        work = work_of(sum(fit.steps for fit in site.fits), momentum)
        return replace(super().send(site), numbers={WORK: work})

    def combine(self, server: Server, replies: Mapping[str, Message]) -> None:
        """Average changes per unit of work, then go as far as the mean work; average statistics."""
        before = server.weights
        super().combine(server, replies)
        learned = server.weights.names - server.buffers
        shares = server.row(replies)
        row, rest = normalized(shares, [reply.numbers[WORK] for reply in replies.values()])
        parts = {site: reply.weights.pick(learned) for site, reply in replies.items()}
        server.weights.load(mix({**parts, "": before.pick(learned)}, [*row, rest]))


def work_of(steps: int, momentum: float) -> float:
    """How many steps of plain SGD so many steps with momentum are, along a constant gradient."""
    return sum((1 - momentum ** (left + 1)) / (1 - momentum) for left in range(steps))


def normalized(shares: list[float], works: list[float]) -> tuple[list[float], float]:
    """The share of each reply and of the weights before them; equal works leave shares alone."""
    first = works[0]
    mean = first + sum(share * (work - first) for share, work in zip(shares, works, strict=True))
    row = [share * (mean / work) for share, work in zip(shares, works, strict=True)]
    rest = sum(share * (1 - mean / work) for share, work in zip(shares, works, strict=True))
    return row, rest
