"""FedNova: changes normalized by the work behind them (Wang et al., NeurIPS 2020, 2007.07481)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from polyclinic.federation.message import Message
from polyclinic.federation.method import Method
from polyclinic.federation.mixing import mix
from polyclinic.federation.server import Server


@dataclass(frozen=True)
class FedNova(Method):
    """FedAvg in which a site that took more steps does not count for more.

    It makes a difference where sites take different numbers of steps: training.epochs.
    """

    mean_only: ClassVar[str] = (
        "each reply is weighted by the steps behind it, as its site tells them"
    )

    def combine(self, server: Server, replies: Mapping[str, Message]) -> None:
        """Average changes per unit of work, then go as far as the mean work; average statistics.

        Work is how far a constant gradient would have taken a site in its steps.
        """
        before, training = server.weights, server.training
        super().combine(server, replies)
        learned = server.weights.names - server.buffers
        shares = server.row(replies)
        momentum = training.momentum if training.optimizer == "sgd" else 0.0
        works = [work_of(reply.numbers["steps"], momentum) for reply in replies.values()]
        row, rest = normalized(shares, works)
        parts = {site: reply.weights.pick(learned) for site, reply in replies.items()}
        server.weights.load(mix({**parts, "": before.pick(learned)}, [*row, rest]))


def work_of(steps: float, momentum: float) -> float:
    """How many steps of plain SGD so many steps with momentum are, along a constant gradient."""
    return (steps - momentum * (1 - momentum**steps) / (1 - momentum)) / (1 - momentum)


def normalized(shares: list[float], works: list[float]) -> tuple[list[float], float]:
    """The share of each reply and of the weights before them; equal works leave shares alone."""
    first = works[0]
    mean = first + sum(share * (work - first) for share, work in zip(shares, works, strict=True))
    factors = [mean / work if work else 0.0 for work in works]
    row = [share * factor for share, factor in zip(shares, factors, strict=True)]
    rest = sum(share * (1 - factor) for share, factor in zip(shares, factors, strict=True))
    return row, rest
