"""SCAFFOLD: control variates against drift (Karimireddy et al., ICML 2020, arXiv 1910.06378)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from pydantic import Field

from polyclinic.federation.message import Message
from polyclinic.federation.method import Method
from polyclinic.federation.mixing import mix
from polyclinic.federation.server import Server
from polyclinic.federation.site import Parameters, Site
from polyclinic.runs import SiteInfo

OWN, COMMON, CHANGE = "control", "common control", "change of control"


@dataclass(frozen=True)
class SCAFFOLD(Method):
    """Corrects each step by the difference of the common and the site's own control variate.

    Its algebra needs plain SGD, so it always trains with that, at a learning rate of its own;
    controls are averaged as weights are, and renewed from the way travelled (option II).
    """

    learning_rate: Annotated[float, Field(gt=0)] = 0.1
    """Rate of plain SGD, in place of the study's."""
    server_rate: Annotated[float, Field(gt=0)] = 1.0
    """Size of the server's step towards the mean reply."""

    paper_weighting: ClassVar[str] = "uniform"
    shared_memory: ClassVar[frozenset[str]] = frozenset({OWN})  # its change is, at first, all of it
    mean_only: ClassVar[str] = (
        "its common control is the mean of what all sites send beside their weights"
    )

    def message(self, server: Server, info: SiteInfo) -> Message:  # noqa: ARG002
        """The shared weights and the common control."""
        return Message(server.weights, extras=dict(server.memory))

    def visit(self, site: Site) -> Message:
        """Plain SGD along corrected gradients, then a new control from the way travelled."""
        self.receive(site)
        names = [name for name, _ in site.net.named_parameters()]
        zero = torch.zeros((), device=site.device)
        common = {n: site.message.extras.get(f"{COMMON}/{n}", zero).to(site.device) for n in names}
        own = {n: site.memory.get(f"{OWN}/{n}", zero) for n in names}

        def correct(parameters: Parameters) -> None:
            for name, parameter in parameters.items():
                if parameter.grad is not None:
                    parameter.grad.add_(common[name] - own[name])

        before = site.take(frozenset(names))
        plain = {"optimizer": "sgd", "momentum": 0.0, "weight_decay": 0.0}
        training = site.training.model_copy(update=plain | {"learning_rate": self.learning_rate})
        fit = site.fit(self.loss, training=training, hook=correct)
        changes = {
            n: (before[n] - site.weights[n]) / max(fit.rates, 1e-12) - common[n] for n in names
        }
        site.memory.update({f"{OWN}/{n}": own[n] + changes[n] for n in names})
        extras = {f"{CHANGE}/{n}": change for n, change in changes.items()}
        return Message(site.take(site.shared), extras=extras)

    def combine(self, server: Server, replies: Mapping[str, Message]) -> None:
        """Step towards the mean of the replies; move the common control by the changes."""
        before = server.weights
        super().combine(server, replies)
        if self.server_rate != 1:
            rate, mean = self.server_rate, server.weights
            server.weights = mix({"old": before, "new": mean}, [1 - rate, rate])
            # A longer step could take a running variance below zero: statistics stay the mean.
            stepped = {key.removeprefix(f"{CHANGE}/") for r in replies.values() for key in r.extras}
            server.weights.load(mean.pick(mean.names - stepped))
        present = server.present(replies)
        for reply, share in zip(replies.values(), server.row(replies), strict=True):
            for key, change in reply.extras.items():
                name = key.replace(CHANGE, COMMON, 1)
                old = server.memory.get(name, torch.zeros(()))
                server.memory[name] = old + present * share * change
