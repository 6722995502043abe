"""Sites of a trial: like those of the local engine, but watched or made as different as allowed."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

from polyclinic.engine.local import LocalSites
from polyclinic.engine.local_worker import LocalWorker
from polyclinic.engine.run import Assignment
from polyclinic.engine.site_runner import SiteRunner
from polyclinic.engine.sites import Reply
from polyclinic.engine.states import SiteState
from polyclinic.federation.message import Message
from polyclinic.federation.method import Stage
from polyclinic.federation.weights import Weights

Outcome = TypeVar("Outcome")


@dataclass(frozen=True)
class Exchange:
    """One visit as seen from outside: what came, what left, and what the site had and has."""

    stage: Stage
    round: int
    site: str
    message: Message  # as it was written
    reply: Message
    before: SiteState | None
    after: SiteState
    network: Weights  # at the end of the visit
    message_changed: bool
    reply_is_live: bool  # its tensors are the network's own

    def __str__(self) -> str:
        return f"round {self.round}, stage {self.stage.name}, site {self.site}"


class WatchedSites(LocalSites):
    """Sites whose every exchange is noted."""

    def __init__(self, *run: Any) -> None:
        super().__init__(*run)
        self.exchanges: list[Exchange] = []

    def ask(
        self, stage: Stage, messages: Mapping[str, Message], *, number: int, since: int
    ) -> Iterator[tuple[str, Reply]]:
        """Let the sites work one by one, and note what came of it."""
        live = self.worker.runner.weights.flat.untyped_storage().data_ptr()
        for site, message in messages.items():
            written, before = copied(message), self.states.load(site, since)
            ((_, reply),) = super().ask(stage, {site: message}, number=number, since=since)
            after, answer = self.states.load(site, number), reply.message
            assert after is not None, "a visit leaves a state"
            assert answer is not None, "no site of a trial is left out"
            leaving = {"weights": answer.weights.flat, **answer.extras}
            exchange = Exchange(
                stage=stage,
                round=number,
                site=site,
                message=written,
                reply=copied(answer),
                before=before,
                after=after,
                network=self.worker.runner.weights.copy(),
                message_changed=bool(difference(named(written), named(message))),
                reply_is_live=any(
                    each.numel() and each.untyped_storage().data_ptr() == live
                    for each in leaving.values()
                ),
            )
            self.exchanges.append(exchange)
            yield site, reply


class ScatteredSites(LocalSites):
    """Sites that share nothing: a new runner and a new method for each visit, in reverse order."""

    def __init__(self, renewed: Callable[[], Assignment], *run: Any) -> None:
        super().__init__(*run)
        self.renewed = renewed

    def ask(
        self, stage: Stage, messages: Mapping[str, Message], *, number: int, since: int
    ) -> Iterator[tuple[str, Reply]]:
        """Let the last site work first."""
        turned = dict(reversed(list(messages.items())))
        return super().ask(stage, turned, number=number, since=since)

    def _map(self, work: Callable[..., Outcome], tasks: Sequence[Any]) -> Iterator[Outcome]:
        old = self.worker
        for task in tasks:
            runner = SiteRunner(self.renewed(), old.runner.device)
            yield work(LocalWorker(runner, old.data, old.run, old.states, pictures=False), *task)


def copied(message: Message) -> Message:
    """The same message with tensors of its own."""
    extras = {name: tensor.detach().clone() for name, tensor in message.extras.items()}
    return Message(message.weights.copy(), extras, dict(message.numbers))


def named(message: Message) -> dict[str, Tensor]:
    """All tensors of a message, weights and extras, by telling names."""
    weights = {f"weights {name}": tensor for name, tensor in message.weights.items()}
    return weights | {f"extra {name}": tensor for name, tensor in message.extras.items()}


def difference(first: Mapping[str, Tensor], second: Mapping[str, Tensor]) -> str:
    """The first name whose tensors are not equal bit by bit; empty where all are."""
    for name in sorted(first.keys() | second.keys()):
        if name not in first or name not in second or not torch.equal(first[name], second[name]):
            return name
    return ""
