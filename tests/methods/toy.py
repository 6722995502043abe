"""A server with a few numbers for weights, and sites opened one by one, to hold update rules to."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from polyclinic.config import FederationSettings
from polyclinic.data.batches import batches
from polyclinic.data.cases import Batch
from polyclinic.engine.local import assign
from polyclinic.engine.run import runs_of
from polyclinic.engine.site_runner import SiteRunner
from polyclinic.federation.message import Message
from polyclinic.federation.server import Server
from polyclinic.federation.site import Site
from polyclinic.federation.weights import Weights
from polyclinic.runs import SiteInfo
from polyclinic.seeds import torch_generator
from tests.federations import Federation

STATISTIC = "norm.running_var"


def toy_weights(seed: int, size: int = 30) -> Weights:
    """Weights of a layer and a running statistic."""
    rng = torch.Generator().manual_seed(seed)
    return Weights.pack(
        {
            "conv.weight": torch.randn(size, generator=rng),
            STATISTIC: torch.rand(4, generator=rng) + 0.5,
        }
    )


def toy_server(sites: int = 3, weighting: str = "uniform") -> Server:
    """A server that knows which of its weights is a statistic."""
    infos = tuple(SiteInfo(f"site{n}", n, "mask", 10 + n) for n in range(sites))
    settings = FederationSettings(weighting=weighting)
    return Server(infos, toy_weights(99), settings, 0, buffers=frozenset({STATISTIC}))


def toy_replies(seed: int, sites: int = 3, **numbers: tuple[float, ...]) -> dict[str, Message]:
    """A reply of each site, with numbers of each."""
    return {
        f"site{n}": Message(
            toy_weights(100 * seed + n),
            numbers={"images": 10.0 + n, **{key: each[n] for key, each in numbers.items()}},
        )
        for n in range(sites)
    }


def stacked(replies: dict[str, Message], name: str = "conv.weight") -> Tensor:
    """The replies' tensors of one name, one row for each, in double precision."""
    return torch.stack([reply.weights[name] for reply in replies.values()]).double()


def opened(small: Federation, method: str, *settings: str, number: int = 1) -> Site:
    """The first site of a federation, visited in this round with the first weights."""
    study = small.study(method, *settings)
    (run,) = runs_of(study, small.folder / "runs")
    data = small.data(study)
    runner = SiteRunner(assign(run, data), torch.device("cpu"))
    chosen = runner.assignment.method
    stage = chosen.each_round()[0]
    message = Message(runner.first_weights())
    return runner._site(runner.assignment.sites[0], data[0], stage, message, None, number)


def batches_of(site: Site, steps: int, stream: str = "main") -> Iterator[Batch]:
    """The batches that a fit of this site sees."""
    drawn = (site.seed, site.info.name, site.round, site.stage, stream)
    return batches(
        site.data.train,
        batch=site.training.batch,
        steps=steps,
        rng=torch_generator(*drawn, "data"),
        augmentation=site.training.augmentation,
        fill=site.task.fill,
    )
