"""FedSM: personal models, and a selector among them (Xu et al., CVPR 2022, arXiv 2203.10144)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal, cast

import torch
from pydantic import Field
from torch import Tensor
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from polyclinic.data.cases import Batch
from polyclinic.federation.message import Message
from polyclinic.federation.method import Method, Stage
from polyclinic.federation.mixing import mix
from polyclinic.federation.server import Server
from polyclinic.federation.site import Parameters, Site
from polyclinic.federation.weights import Weights, group
from polyclinic.networks.contract import Segmenter
from polyclinic.networks.parts import Names, everything, parameters, under
from polyclinic.networks.personal_copy import COPY
from polyclinic.networks.selector import SELECTOR, SuperSegmenter
from polyclinic.runs import SiteInfo

Share = Annotated[float, Field(ge=0, le=1)]


@dataclass(frozen=True)
class FedSM(Method):
    """FedAvg, personal models that the server pulls together a little, and a selector.

    Each image is predicted by the personal model of the site that the selector takes it for, or by
    the shared model where it is less sure than `threshold`. All personal models go to all sites.
    """

    own_share: Share = 0.7
    """Share of a site's own model in its new personal one, 0 to 1; 1 leaves it alone."""
    threshold: Share = 0.9
    """Certainty from which a personal model predicts; 1 is always the shared one."""
    selector_rate: Annotated[float, Field(gt=0)] = 0.001
    """Learning rate of the selector (Adam, one step a round)."""
    selector_width: Annotated[int, Field(ge=1)] = 16
    """Channels of the selector's first convolution."""
    uses: Literal["selected", "personal"] = "selected"
    """Model that a site uses: the one selected for an image, or its personal one."""

    paper_weighting: ClassVar[str] = "steps"

    def adapt(self, net: Segmenter, sites: tuple[SiteInfo, ...]) -> Segmenter:
        """The network with a personal copy and a selector."""
        return SuperSegmenter(net, sites=len(sites), width=self.selector_width)

    def predicts_with(self, net: Segmenter) -> Names:
        """All but the selector, which only chooses and is the same everywhere."""
        personal = under(net, COPY)
        return personal if self.uses == "personal" else everything(net) - under(net, SELECTOR)

    def predicts_alone(self) -> bool:
        """A site that selects remembers the others' personal models."""
        return self.uses == "personal"

    def each_round(self) -> tuple[Stage, ...]:
        """One stage, in which personal models leave their sites."""
        return (replace(super().each_round()[0], discloses=True),)

    def finalizing(self) -> Stage:
        """A site needs the others' personal models to choose from."""
        return replace(super().finalizing(), message=self.bundle)

    # The server's half.

    def message(self, server: Server, info: SiteInfo) -> Message:
        """The shared model, the selector and the site's own personal model."""
        weights = server.weights.copy()
        if f"{COPY}/{info.name}" in server.memory:
            weights.load(personal_of(server, info.name))
        return Message(weights)

    def bundle(self, server: Server, info: SiteInfo) -> Message:
        """The same with the personal models of all others."""
        message = self.message(server, info)
        if self.uses == "personal":
            return message
        extras: dict[str, Tensor] = {}
        for other in server.sites:
            if other != info and f"{COPY}/{other.name}" in server.memory:
                extras |= in_memory(other.name, personal_of(server, other.name))
        return replace(message, extras=extras)

    def combine(self, server: Server, replies: Mapping[str, Message]) -> None:
        """Means of shared model and selector; SoftPull of the personal models."""
        super().combine(server, replies)
        names = personal_names(server)
        parts = {site: reply.weights.pick(names) for site, reply in replies.items()}
        for site in parts:
            row = soft_pull(self.own_share, list(parts).index(site), len(parts))
            server.memory[f"{COPY}/{site}"] = mix(parts, row).flat

    # The site's half.

    def train(self, site: Site) -> None:
        """Train the shared model, the personal one, and the selector by one step."""
        personal, selector = under(site.net, COPY), under(site.net, SELECTOR)
        site.fit(shared_loss, only=everything(site.net) - personal - selector)
        site.fit(self.loss, only=personal)
        self.learn_to_select(site, selector & parameters(site.net))

    def learn_to_select(self, site: Site, names: Names) -> None:
        """One step of Adam down the mean gradient over all images of the site."""
        gradients: dict[str, Tensor] = {}
        steps = site.steps_of(epochs=1)

        def gather(parameters: Parameters) -> None:
            for name, parameter in parameters.items():
                assert parameter.grad is not None
                key = name.removeprefix(f"{SELECTOR}.")
                gradients[key] = gradients.get(key, 0.0) + parameter.grad / steps

        site.fit(selector_loss, only=names, steps=steps, stream=SELECTOR, update=gather)
        selector = cast(SuperSegmenter, site.net).selector
        selector.step(gradients, self.selector_rate, site.round)

    def finalize(self, site: Site) -> Message:
        """Take up everything, the others' personal models too."""
        self.receive(site)
        site.memory.update({k: each.to(site.device) for k, each in site.message.extras.items()})
        return Message()

    def predict(self, site: Site, images: Tensor) -> Tensor:
        """Class probabilities, each image's by the model chosen for it."""
        net = cast(SuperSegmenter, site.net)
        if self.uses == "personal":
            return super().predict(site, images)
        chosen = net.chosen(images, self.threshold)
        found = net.shared_logits(images).softmax(1)
        for info in site.sites:
            here = (chosen == info.index)[:, None, None, None]
            theirs = group(site.memory, f"{COPY}/{info.name}")
            # The site's own model is in the network; an exported graph holds all of them.
            if torch.compiler.is_exporting() or here.any() or not theirs:
                logits = functional_call(net.personal, theirs, (images,))
                found = torch.where(here, logits.softmax(1), found)
        return found

    def outside(self, site: Site, models: Mapping[str, Weights]) -> Site | None:
        """Choose among the personal models of all sites."""
        if self.uses == "personal":
            return None
        for owner, model in models.items():
            site.memory.update(in_memory(owner, model.pick(under(site.net, COPY))))
        return site


def shared_loss(site: Site, batch: Batch) -> Tensor:
    """The supervised loss of the shared model."""
    logits = cast(SuperSegmenter, site.net).shared_logits(batch.images)
    return site.task_loss(logits, batch)


def selector_loss(site: Site, batch: Batch) -> Tensor:
    """The cross entropy of taking the images for those of this site."""
    logits = cast(SuperSegmenter, site.net).selector(batch.images)
    own = torch.full((len(logits),), site.info.index, device=logits.device)
    return cross_entropy(logits.float(), own)


def soft_pull(own_share: float, place: int, sites: int) -> list[float]:
    """The row of a site's new personal model: its own share, and the rest evenly; 1 if alone."""
    if sites == 1:
        return [1.0]
    row = [(1 - own_share) / (sites - 1)] * sites
    row[place] = own_share
    return row


def in_memory(site: str, personal: Weights) -> dict[str, Tensor]:
    """A site's personal model by the names that it has in extras and in a memory."""
    return {f"{COPY}/{site}/{n.removeprefix(f'{COPY}.')}": t for n, t in personal.items()}


def personal_names(server: Server) -> Names:
    """The names of the personal model among the shared weights."""
    return frozenset(name for name in server.weights if name.startswith(f"{COPY}."))


def personal_of(server: Server, site: str) -> Weights:
    """A site's personal model as the server has it."""
    layout = server.weights.pick(personal_names(server)).layout
    return Weights(layout, server.memory[f"{COPY}/{site}"])
