"""A method: what a network becomes, what is shared, how a site learns, how a server combines."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import ClassVar, Protocol

from torch import Tensor

from polyclinic.data.cases import Batch
from polyclinic.federation.message import Message
from polyclinic.federation.server import Server
from polyclinic.federation.site import Site
from polyclinic.federation.weights import Weights
from polyclinic.networks.contract import Segmenter
from polyclinic.networks.parts import Names, everything
from polyclinic.networks.two_branches import branches
from polyclinic.runs import MapKind, SiteInfo

DISCLOSED = "disclosed"  # what a site's private weights are called on their way to others
SPECTRUM = "spectrum"  # the extras that are made from images


@dataclass(frozen=True)
class Stage:
    """One exchange: a message to each site, work there, the replies combined.

    In a ring the sites work one after another, and each reply is combined before the next site's
    message is written. After a finalizing stage a site keeps its whole network. A stage that
    discloses lets the sites' private weights leave too, as extras called `disclosed/…`; in one
    `from_images` what leaves is made from images, as extras called `spectrum/…`. Where a stage
    shares other weights than its method does later, `shares` says which. `check` raises an error
    where the network cannot do the stage, before anything is trained.
    """

    name: str
    message: Callable[[Server, SiteInfo], Message]
    work: Callable[[Site], Message]
    combine: Callable[[Server, Mapping[str, Message]], None]
    ring: bool = False
    finalizes: bool = False
    discloses: bool = False
    from_images: bool = False
    shares: Callable[[Segmenter], Names] | None = None
    check: Callable[[Segmenter], None] | None = None


@dataclass(frozen=True)
class Method:
    """Settings and answers; every default is FedAvg's answer. State never lives here."""

    title: ClassVar[str] = ""  # what tables call it, where that is not the name of the class
    pools: ClassVar[bool] = False  # trains on the images of all sites together
    paper_weighting: ClassVar[str] = "samples"  # of its authors; "" where nothing is averaged
    shared_memory: ClassVar[frozenset[str]] = frozenset()  # groups of a site's that replies carry
    late: ClassVar[frozenset[str]] = frozenset()  # settings that act only after the last round
    by_rounds: ClassVar[bool] = False  # what a round does depends on how many there are
    mean_only: ClassVar[str | None] = None  # why no rule but a mean will do; "" where any will
    maps: ClassVar[MapKind] = "attention"  # what `attention_maps` shows; classes by their numbers
    one_branch: ClassVar[bool] = False  # its loss has logits of its own, of the main branch alone

    def adapt(self, net: Segmenter, sites: tuple[SiteInfo, ...]) -> Segmenter:  # noqa: ARG002
        """The network the method works with, made from the study's."""
        return net

    def weak_terms(self) -> Mapping[str, float]:
        """Settings of `training.weak` that belong to the method, unless a study sets others."""
        return {}

    def shares(self, net: Segmenter) -> Names:
        """The weights that travel; all others are private to a site."""
        return everything(net)

    def keeps(self, net: Segmenter) -> Names:
        """The weights a site needs again at its next visit."""
        return everything(net) - self.shares(net)

    def server_made(self, net: Segmenter) -> Names:  # noqa: ARG002
        """Private weights that the server makes, for each site its own, and no site ever sends."""
        return frozenset()

    def predicts_with(self, net: Segmenter) -> Names:
        """The weights a prediction depends on; others are never disclosed."""
        return everything(net) - self.server_made(net)

    def predicts_alone(self) -> bool:
        """Whether a prediction needs no memory of the site beside the network in use."""
        return True

    # The walk of a run: stages before the rounds, of each round, and after the last.

    def before(self) -> tuple[Stage, ...]:
        """Stages before the first round."""
        return ()

    def each_round(self) -> tuple[Stage, ...]:
        """Stages of every round."""
        return (Stage("fit", self.message, self.visit, self.combine),)

    def warm_rounds(self, rounds: int) -> int:  # noqa: ARG002
        """How many of the first rounds are a warm start; the best round is none of them."""
        return 0

    def warm_round(self) -> tuple[Stage, ...]:
        """Stages of a round of the warm start."""
        return ()

    def finalizing(self) -> Stage:
        """The stage in which a site takes up the model it will use."""
        return Stage("finalize", self.message, self.finalize, ignore, finalizes=True)

    def after(self) -> tuple[Stage, ...]:
        """Stages after the sites have finalized."""
        return ()

    # The server's half.

    def start(self, server: Server) -> None:
        """Fill the server's memory before anything else happens."""

    def message(self, server: Server, info: SiteInfo) -> Message:  # noqa: ARG002
        """What the server writes to a site."""
        return Message(server.weights)

    def combine(self, server: Server, replies: Mapping[str, Message]) -> None:
        """Make the next shared weights from the replies."""
        server.weights = server.combined(replies)

    def needs_mean(self) -> str:
        """Why replies can be combined by their mean only; empty where any rule will do."""
        if self.mean_only is not None:
            return self.mean_only
        combines = [stage.combine for stage in (*self.before(), *self.each_round())]
        usual = type(self).combine is Method.combine and all(
            each in (self.combine, ignore) for each in combines
        )
        return "" if usual else "it combines replies in a way of its own"

    # The site's half.

    def visit(self, site: Site) -> Message:
        """A site's part of a round."""
        self.receive(site)
        self.train(site)
        return self.send(site)

    def receive(self, site: Site) -> None:
        """Take up the message's weights."""
        site.load(site.message.weights)

    def train(self, site: Site) -> None:
        """Learn from the site's images."""
        site.fit(self.loss)

    def loss(self, site: Site, batch: Batch) -> Tensor:
        """The value to lower."""
        return plain_loss(site, batch)

    def send(self, site: Site) -> Message:
        """The reply; the engine adds the numbers of images and steps."""
        return Message(site.take(site.shared))

    def finalize(self, site: Site) -> Message:
        """Become the model that is used and scored."""
        self.receive(site)
        return Message()

    def in_use(self, site: Site) -> AbstractContextManager[None]:  # noqa: ARG002
        """While open, the network has the weights the site predicts with."""
        return nullcontext()

    def predict(self, site: Site, images: Tensor) -> Tensor:
        """Class probabilities (B×K×H×W) for normalised images, the network being in use."""
        return site.net(images).softmax(dim=1)

    def outside(self, site: Site, models: Mapping[str, Weights]) -> Site | None:  # noqa: ARG002
        """A site that took no part, made ready to predict from the sites' models in use.

        It has the shared weights; None where the method has no way of its own.
        """
        return None

    def tuned_outside(self, net: Segmenter, shared: Names) -> Names:
        """What a site that took no part trains for itself: what is private and heard."""
        return self.predicts_with(net) - shared

    def diagnose(self, site: Site, batch: Batch) -> dict[str, float]:  # noqa: ARG002
        """Numbers that tell whether the method's parts act, for images and their masks.

        The network is in use and at rest; names that are known have words in `DIAGNOSTICS`.
        """
        return {}

    def attention_maps(self, site: Site, images: Tensor) -> Mapping[str, Tensor]:  # noqa: ARG002
        """Maps (B×h×w, any scale) of where the network looks, by name; drawn as `maps` says."""
        return {}


def plain_loss(site: Site, batch: Batch) -> Tensor:
    """The task's loss alone: labels and, where they are weak, what stands in for missing ones."""
    logits, second = branches(site.net, batch.images)
    return site.task_loss(logits, batch, second=second)


def labelled_loss(site: Site, batch: Batch) -> Tensor:
    """The loss of the labels alone."""
    logits, second = branches(site.net, batch.images)
    return site.labelled_loss(logits, batch, second)


def ignore(server: Server, replies: Mapping[str, Message]) -> None:
    """Combine nothing: the replies were only acknowledgements."""


class Finish(Protocol):
    """A finishing step that can follow any method."""

    def stages(self, method: Method) -> tuple[Stage, ...]:
        """Its stages, after those of the method."""
        ...


def stay(site: Site) -> Message:  # noqa: ARG001
    """Nothing to do: the site has its model already."""
    return Message()


def silent(server: Server, info: SiteInfo) -> Message:  # noqa: ARG001
    """An empty message: the site has all it needs."""
    return Message()
