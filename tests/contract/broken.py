"""Methods that break the contract, at least one for each check; some break several points."""

from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch

from polyclinic.federation.message import Message
from polyclinic.federation.method import Method, Stage, ignore, silent
from polyclinic.federation.mixing import mix
from polyclinic.methods.ditto import PERSONAL, Ditto
from polyclinic.methods.fedrep import FedRep
from polyclinic.networks.parts import everything, part


class Thawed(Method):
    """Settings that are fields of no frozen dataclass."""

    def __init__(self, pull: float = 0.1) -> None:
        pass


@dataclass(frozen=True)
class Unpacked(Method):
    """A setting that no file can hold."""

    rule: object = field(default_factory=lambda: len)


@dataclass(frozen=True)
class Rooted(Method):
    """Holds a function that cannot travel."""

    def __getstate__(self):
        raise TypeError("cannot pickle a method with a lambda")


@dataclass(frozen=True)
class Namesakes(Method):
    def before(self):
        return (Stage("fit", silent, lambda site: Message(), ignore),)


@dataclass(frozen=True)
class Unfinal(Method):
    def after(self):
        return (Stage("tidy", silent, lambda site: Message(), ignore),)


@dataclass(frozen=True)
class Ungenerous(Method):
    """Cannot train on a single case."""

    def loss(self, site, batch):
        apart = (batch.images - batch.images.mean(dim=0)).square().sum()
        return super().loss(site, batch) + 0 * apart / torch.tensor(len(batch.images) - 1)


@dataclass(frozen=True)
class Sociable(Method):
    """Divides by the number of other sites."""

    def combine(self, server, replies):
        super().combine(server, replies)
        server.memory["share"] = torch.tensor(1 / (len(server.sites) - 1))


@dataclass(frozen=True)
class Impatient(Method):
    """Takes it that every site answered."""

    def combine(self, server, replies):
        parts = {info.name: replies[info.name].weights for info in server.sites}
        server.weights = mix(parts, [1 / len(parts)] * len(parts))


_visits: list[str] = []


@dataclass(frozen=True)
class Counting(Method):
    """Every visit ever made in this process changes the next."""

    def train(self, site):
        _visits.append(site.info.name)
        super().train(site)
        site.weights.flat.mul_(1 + len(_visits) / 1e4)


@dataclass(frozen=True)
class Watchful(Method):
    """Notes at the server how often it was asked for a message to finalize with."""

    def finalizing(self):
        return Stage("finalize", self.counted, self.finalize, ignore, finalizes=True)

    def counted(self, server, info):
        server.memory["asked"] = server.memory.get("asked", torch.zeros(())) + 1
        return self.message(server, info)


@dataclass(frozen=True)
class Forgetful(Method):
    """Keeps what it needs again where a restart forgets it: in the server object itself."""

    def combine(self, server, replies):
        super().combine(server, replies)
        server.past = getattr(server, "past", 0) + 1
        server.weights.flat.mul_(1 + server.past / 1e3)


@dataclass(frozen=True)
class Hoarding(Method):
    """Counts its visits in itself."""

    visits: ClassVar[int] = 0

    def train(self, site):
        super().train(site)
        object.__setattr__(self, "visits", self.visits + 1)
        site.weights.flat.mul_(1 + self.visits / 1e3)


@dataclass(frozen=True)
class Scribbling(Method):
    """Trains on in the message."""

    def send(self, site):
        site.message.weights.flat.add_(1e-3)
        return super().send(site)


@dataclass(frozen=True)
class Live(Method):
    """Replies with the network's own tensors."""

    def send(self, site):
        return Message(site.weights)


@dataclass(frozen=True)
class Stingy(FedRep):
    """Sends the head as well, which it does not share."""

    def send(self, site):
        return Message(site.take(everything(site.net)))


@dataclass(frozen=True)
class Leaking(FedRep):
    """Sends the private head under another name."""

    def send(self, site):
        head = site.take(part(site.net, "head"))
        return replace(super().send(site), extras={"hint": torch.cat([head.flat, head.flat])})


@dataclass(frozen=True)
class Boasting(Ditto):
    """Sends the personal model in place of the shared one."""

    def send(self, site):
        with site.using(PERSONAL):
            return super().send(site)


@dataclass(frozen=True)
class Showing(Method):
    """Sends a row of an image's pixels as numbers."""

    def send(self, site):
        row = site.data.train.images[0, 0, 16].tolist()
        return replace(super().send(site), numbers={f"n{i}": float(v) for i, v in enumerate(row)})


@dataclass(frozen=True)
class Labelling(Method):
    """Sends the labels of a case."""

    def send(self, site):
        return replace(super().send(site), extras={"hint": site.data.train.masks[0].float()})


@dataclass(frozen=True)
class Whispering(FedRep):
    """Discloses in a stage that does not say so, under the name for it."""

    def send(self, site):
        head = site.take(part(site.net, "head"))
        return replace(super().send(site), extras={"disclosed/head.weight": head.flat[:3].clone()})


@dataclass(frozen=True)
class Remembering(Ditto):
    """Learns while it predicts."""

    @contextmanager
    def in_use(self, site):
        with site.using(PERSONAL):
            site.weights.flat.add_(1e-3)
            yield


@dataclass(frozen=True)
class Scores(Method):
    """Predicts logits instead of probabilities."""

    def predict(self, site, images):
        return site.net(images)


@dataclass(frozen=True)
class Silent(Method):
    """Says that it predicts with the head alone."""

    def predicts_with(self, net):
        return part(net, "head")


@dataclass(frozen=True)
class Deaf(Method):
    """Uses a copy that is thrown away, so that finishing steps learn for nothing."""

    @contextmanager
    def in_use(self, site):
        before = site.weights.copy()
        try:
            yield
        finally:
            site.load(before)


BROKEN: dict[str, list[tuple[type, str]]] = {
    "its settings survive a file": [(Thawed, "frozen dataclass"), (Unpacked, "file")],
    "it travels to worker processes": [(Rooted, "cannot travel to worker processes")],
    "its stages are sound": [(Namesakes, "called fit"), (Unfinal, "must finalize: tidy")],
    "it runs on unequal sites, one of a single case": [(Ungenerous, "site fjord became nan")],
    "it runs with one site": [(Sociable, "one site with one case stopped: ZeroDivisionError")],
    "it runs with sites away and private statistics": [(Impatient, "two take part .*KeyError")],
    "the same run gives the same bits": [(Counting, "done twice")],
    "scoring in the middle changes nothing": [(Watchful, "memory/asked")],
    "a killed run resumes to the same bits": [(Forgetful, "killed and resumed")],
    "no state lives in the method": [(Hoarding, "changed the method itself: visits")],
    "a visit leaves its message alone": [(Scribbling, "changed its message")],
    "a reply is a copy": [(Live, "not a copy")],
    "exactly what is shared travels": [(Stingy, r"sends what it does not share: \['head")],
    "nothing private leaves": [
        (Leaking, "extra hint .* the private weight head"),
        (Boasting, r"weights \S+ .*site.memory\['personal/"),
        (Showing, "numbers .* the train images"),
        (Labelling, "extra hint .* the train (labels|masks)"),
    ],
    "it discloses only where it says so": [(Whispering, "does not say so")],
    "predicting leaves no trace": [(Remembering, "predicting changed"), (Scores, "sum to one")],
    "it names what it predicts with": [(Silent, "predicts_with lacks")],
    "finishing steps can follow": [(Deaf, "changed nothing at the site")],
}
"""For each check, methods that fail it and what is said of them."""
