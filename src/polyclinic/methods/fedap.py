"""FedAP, also AdaFed: own mixtures by alike statistics (Lu et al., 2022, arXiv 2112.00734)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from polyclinic.federation.estimating import input_moments
from polyclinic.federation.message import Message
from polyclinic.federation.method import Method, Stage
from polyclinic.federation.mixing import mix
from polyclinic.federation.server import Server
from polyclinic.federation.site import Site
from polyclinic.federation.weights import Weights
from polyclinic.networks.contract import Segmenter
from polyclinic.networks.parts import Names, everything, nonempty, norms, part
from polyclinic.runs import SiteInfo

MOMENTS, DISTANCES, MIXTURE = "moments", "distances", "mixture"
MEAN, DEVIATION = "mean", "deviation"
NEAREST = 1e-12  # sites at no distance share what is given to others between them


@dataclass(frozen=True)
class FedAP(Method):
    """FedBN with a mixture of its own for every site: `own` of itself, the rest by likeness.

    Before the first round the inputs of BatchNorm layers are measured at every site, those of the
    encoder or all, by a model that it trained `alone` for so many rounds, which is then forgotten;
    with 0 by the common start.
    """

    own: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Share of a site's own weights in its mixture, 0 to 1; 1 is local training."""
    measured: Literal["encoder", "all"] = "encoder"
    """The BatchNorm layers whose inputs are compared."""
    alone: Annotated[float, Field(ge=0)] = 1.0
    """Rounds that a site trains alone before it is measured; 0 measures the common start."""

    def shares(self, net: Segmenter) -> Names:
        """All but the norm layers."""
        measured = norms(net) & part(net, "encoder") if self.measured == "encoder" else norms(net)
        nonempty(
            measured,
            net,
            f"FedAP compares sites by what BatchNorm layers ({self.measured}) receive",
            "take a network with such layers (unet, resnet_fpn), or fedavg or fedper",
        )
        return everything(net) - norms(net)

    def before(self) -> tuple[Stage, ...]:
        """Every site is measured, and told apart from the others."""
        return (Stage("measure", self.message, self.measure, self.compare),)

    def measure(self, site: Site) -> Message:
        """Mean and deviation of the layers' inputs; the site stays as it was."""
        self.receive(site)
        start = site.weights.copy()
        training = site.training.model_copy(update={"keep_optimizer": False})
        steps = round(self.alone * site.steps)
        site.fit(self.loss, steps=steps, training=training, stream="alone")
        inside = "" if self.measured == "all" else "encoder."
        found = input_moments(self, site, by_batch=False)
        site.load(start)
        extras: dict[str, Tensor] = {}
        for path in [path for path in found if path.startswith(inside)]:
            extras[f"{MOMENTS}/{path}/{MEAN}"] = found[path].mean.float()
            extras[f"{MOMENTS}/{path}/{DEVIATION}"] = found[path].variance.sqrt().float()
        return Message(extras=extras)

    def compare(self, server: Server, replies: Mapping[str, Message]) -> None:
        """Distances between all sites; a site that was not measured is as far as others on average.

        What was measured is forgotten.
        """
        known = [replies[info.name].extras if info.name in replies else {} for info in server.sites]
        apart = torch.tensor(
            [[distance(a, b) if a and b else torch.nan for b in known] for a in known],
            dtype=torch.float64,
        )
        between = ~torch.eye(len(known), dtype=torch.bool) & ~apart.isnan()
        usual = apart[between].mean() if between.any() else torch.ones((), dtype=torch.float64)
        server.memory[DISTANCES] = torch.where(apart.isnan(), usual, apart)
        server.note("mixing", rows(server.memory[DISTANCES], self.own))

    def message(self, server: Server, info: SiteInfo) -> Message:
        """The site's own mixture; the mean of all before it has one."""
        mixture = server.memory.get(f"{MIXTURE}/{info.name}", server.weights.flat)
        return Message(Weights(server.weights.layout, mixture))

    def combine(self, server: Server, replies: Mapping[str, Message]) -> None:
        """A mixture for each site that replied, and the mean of all for those that come new."""
        super().combine(server, replies)
        parts = {site: reply.weights for site, reply in replies.items()}
        places = [info.index for info in server.sites if info.name in replies]
        names = [info.name for info in server.sites if info.name in replies]
        table = rows(server.memory[DISTANCES][places][:, places], self.own)
        for site, row in zip(names, table.tolist(), strict=True):
            mixture = mix({name: parts[name] for name in names}, row)
            server.memory[f"{MIXTURE}/{site}"] = mixture.flat


def distance(first: Mapping[str, Tensor], second: Mapping[str, Tensor]) -> float:
    """The sum over layers of the distance between two normal distributions (2-Wasserstein)."""
    layers = dict.fromkeys(key.rpartition("/")[0] for key in first)
    apart = {key: (first[key].double() - second[key].double()).square().sum() for key in first}
    return sum(
        float((apart[f"{layer}/{MEAN}"] + apart[f"{layer}/{DEVIATION}"]).sqrt()) for layer in layers
    )


def rows(distances: Tensor, own: float) -> Tensor:
    """How much each site takes of itself and, the nearer the more, of the others; sums are one."""
    if len(distances) == 1:
        return torch.ones_like(distances)
    near = 1 / distances.clamp_min(NEAREST)
    near.fill_diagonal_(0)
    shares = (1 - own) * near / near.sum(1, keepdim=True)
    return shares.fill_diagonal_(own)
