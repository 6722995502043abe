"""A start without a download: the network first learns from drawn images of the task."""

import copy
from dataclasses import dataclass, field
from functools import lru_cache

import torch
from torch import Tensor

from polyclinic.config import DataSettings, TrainingSettings
from polyclinic.data.cases import pool
from polyclinic.data.load import load_federation
from polyclinic.data.tasks import Task
from polyclinic.federation.method import plain_loss
from polyclinic.federation.site import Site
from polyclinic.federation.weights import flatten
from polyclinic.networks.contract import Segmenter
from polyclinic.networks.parts import everything
from polyclinic.runs import SiteInfo
from polyclinic.seeds import derive

DRAWN = derive("pretrain") % 2**31  # other patients than those of any study's own seed


@dataclass(frozen=True)
class Start:
    """A network before it learns from drawn images; equal ones end with equal weights."""

    network: str  # its name and settings
    seed: int
    training: TrainingSettings
    task: Task
    net: Segmenter = field(compare=False)
    device: torch.device = field(compare=False)


def pretrain(start: Start) -> str:
    """Train the network in place on the pooled synthetic sites of its task; tells how."""
    start.net.load_state_dict(learned(start))
    return f"{start.training.pretrain_steps} steps on synthetic {start.task.name} images"


@lru_cache(maxsize=2)
def learned(start: Start) -> dict[str, Tensor]:
    """The weights in the end; every method of a study starts from the same ones."""
    data = pool(load_federation(start.task, DataSettings(seed=DRAWN)))
    info = SiteInfo("synthetic", 0, data.kind, len(data.train))
    net = copy.deepcopy(start.net).to(device=start.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    site = Site(
        info=info,
        sites=(info,),
        data=data,
        task=start.task,
        net=net,
        weights=flatten(net),
        shared=everything(net),
        training=start.training,
        seed=start.seed,
        round=1,
        rounds=1,
        stage="pretrain",
    )
    site.fit(plain_loss, steps=start.training.pretrain_steps)
    return {name: each.detach().cpu() for name, each in net.state_dict().items()}
