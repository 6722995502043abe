"""Small federations that run in a fraction of a second, made from a TOML file as a user does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import count, cycle
from pathlib import Path

import pytest
import torch
from torch import Tensor

from polyclinic.config import DataSettings, SiteSettings, Study, load_study, to_toml
from polyclinic.data import synthetic
from polyclinic.data.cases import Batch, SiteData
from polyclinic.data.load import load_federation
from polyclinic.data.tasks import TASKS
from polyclinic.engine.checkpoint import Checkpoint
from polyclinic.engine.local import LocalEngine, assign, local_sites
from polyclinic.engine.loop import Event
from polyclinic.engine.run import Run, runs_of
from polyclinic.engine.site_runner import SiteRunner
from polyclinic.engine.study import carry_out, run_study
from polyclinic.engine.tensors import load_tensors
from polyclinic.federation.message import Message
from polyclinic.federation.method import Method
from polyclinic.federation.server import Server
from polyclinic.federation.site import Site
from polyclinic.networks import fpn
from polyclinic.runs import SPLITS
from tests.small_unet import TABLES, SmallUNet

NEEDS = {
    "feddp": ("network.name=pvt_fpn", "method.calibration.iterations=2"),
    "fedbabu": ("method.tuning.iterations=2",),
    "fedlc": ("method.calibration.iterations=2",),
    **dict.fromkeys(("fedala", "fedicra", "fedlppa"), ("method.mixing.first_passes=2",)),
}
"""Settings without which a method does not run, or not in a fraction of a second."""

PAPER = ("network.name=unet", "network.width=16")  # whose numbers of weights papers tell
PYRAMID = pytest.param("resnet_fpn", marks=pytest.mark.slow)
NETS = pytest.mark.parametrize("network", [SmallUNet.name, PYRAMID])
"""What holds with any network that has BatchNorm; the quick suite tries one."""


class Federation:
    """A study on a few tiny sites, and its runs.

    Runs give the same bits whenever they are done (the contract sees to that), so one that was
    done before is not done again, unless it has a name of its own.
    """

    _numbers = count()
    _done: dict[tuple, Done] = {}  # noqa: RUF012

    def __init__(
        self,
        folder: Path,
        *,
        sites: int | None = None,
        rounds: int = 2,
        task: str = "octa",
        resolution: int = 32,
        kinds: tuple[str, ...] = ("mask",),
        extra: str = "",
        **changes,
    ) -> None:
        self.folder = folder / f"federation-{next(self._numbers)}"
        self.folder.mkdir(parents=True)
        self.sites = sites or max(2, len(kinds))
        self.resolution = resolution
        self.kinds = kinds
        self.base = [
            f"task.name={task}",
            f"task.resolution={resolution}",
            "network.width=2",
            "training.batch=4",
            "training.iterations=2",
            f"federation.rounds={rounds}",
            "evaluation.every=1",
            "evaluation.pictures=false",
            "engine.threads=1",
            *(f"{key}={value}" for key, value in changes.items()),
        ]
        self.extra = extra

    def study(
        self, method: str = "fedavg", *overrides: str, name: str = "small", then: str = ""
    ) -> Study:
        file = self.folder / "study.toml"
        file.write_text(
            f'name = "{name}"\ntask = "octa"\n[network]\nname = "{SmallUNet.name}"\n'
            f'[method]\nname = "{method}"\n' + (f"then = [{then}]\n" if then else "") + self.extra
        )
        return load_study(file, [*self.base, *NEEDS.get(method, ()), *overrides], TABLES)

    def run(
        self, method: str = "fedavg", *overrides: str, name: str | None = None, then: str = ""
    ) -> Done:
        if name:
            return self._run(self.study(method, *overrides, name=name, then=then))
        study = self.study(method, *overrides, then=then)
        chosen = study.method[0]
        classes = [type(each.built) for each in (chosen, *chosen.then)]
        key = (to_toml(study), id(self.data(study)), fpn.PYRAMID, *classes)
        if key not in self._done:
            named = study.model_copy(update={"name": f"study-{next(self._numbers)}"})
            self._done[key] = self._run(named)
        return self._done[key]

    def _run(self, study: Study) -> Done:
        (run,) = runs_of(study, self.folder / "runs")
        return Done(run, list(perform(run, self.data(study))))

    def data(self, study: Study) -> list[SiteData]:
        return small_data(study.task.name, self.sites, self.kinds, self.resolution)


def perform(run: Run, data: Sequence[SiteData]) -> Iterator[Event]:
    """One run with these cases on this machine, event by event."""
    with local_sites(run, data) as sites:
        yield from carry_out(run, sites)
    Checkpoint(run.folder.path / "checkpoint").remove()


def run_locally(study: Study, root: Path, **how) -> list[Run]:
    """All runs of a study on this machine."""
    return run_study(study, root, LocalEngine(root / SPLITS), **how)


@cache
def small_data(
    task: str, sites: int, kinds: tuple[str, ...] = ("mask",), resolution: int = 32
) -> list[SiteData]:
    """The first sites of the task's synthetic federation, with a few tiny images each.

    Their labels are of these kinds in turn.
    """
    found = zip(synthetic.federation(task)[:sites], cycle(kinds), strict=False)
    chosen = [SiteSettings(name=site.name, labels=kind) for site, kind in found]
    small = TASKS[task].with_resolution(resolution)
    return load_federation(small, DataSettings(size=0.2), chosen, splits_folder=None)


class Done:
    """A finished run and its weights."""

    def __init__(self, run: Run, events: list) -> None:
        self.run = run
        self.folder = run.folder
        self.events = events

    def tensors(self, owner: str) -> dict[str, Tensor]:
        return load_tensors(self.folder.weights_path(owner))[0]

    def site(self, name: str) -> dict[str, Tensor]:
        prefix = "weights/"
        found = self.tensors(name)
        return {n.removeprefix(prefix): t for n, t in found.items() if n.startswith(prefix)}

    def memory(self, name: str) -> dict[str, Tensor]:
        prefix = "memory/"
        found = self.tensors(name)
        return {n.removeprefix(prefix): t for n, t in found.items() if n.startswith(prefix)}


def a_site(
    federation,
    method: str = "fedicra",
    *overrides: str,
    index: int = 0,
    kinds: tuple[str, ...] = ("point", "scribble", "block"),
) -> tuple[Method, Site, Batch]:
    """A site at its first visit, whose network was not trained yet, its method and a batch."""
    small = federation(kinds=kinds)
    study = small.study(method, *overrides)
    (run,) = runs_of(study, small.folder / "runs")
    data = small.data(study)
    runner = SiteRunner(assign(run, data), torch.device("cpu"))
    chosen = runner.assignment.method
    info = runner.assignment.sites[index]
    message = Message(runner.first_weights())
    site = runner._site(info, data[index], chosen.finalizing(), message, None, 1)
    chosen.receive(site)
    images = torch.rand(2, 1, 32, 32, generator=torch.Generator().manual_seed(0))
    labels = torch.full((2, 32, 32), 255, dtype=torch.uint8)
    labels[:, :6], labels[:, 20:26] = 0, 1
    return chosen, site, Batch(images, labels)


def one_visit(
    small: Federation, method: str, *overrides: str
) -> tuple[SiteRunner, Message, Message]:
    """The runner after a visit to the first site, the message that came and the reply."""
    study = small.study(method, "training.iterations=1", *overrides)
    (run,) = runs_of(study, small.folder / "runs")
    data = small.data(study)
    runner = SiteRunner(assign(run, data), torch.device("cpu"))
    chosen, info = runner.assignment.method, runner.assignment.sites[0]
    infos = runner.assignment.sites
    server = Server(infos, runner.first_weights(), study.federation, 0, round=1)
    chosen.start(server)
    stage = chosen.each_round()[0]
    message = stage.message(server, info)
    return runner, message, runner.visit(info, data[0], stage, message, None, 1).reply


def equal(first: dict[str, Tensor], second: dict[str, Tensor]) -> bool:
    """Bit by bit."""
    return first.keys() == second.keys() and all(torch.equal(first[n], second[n]) for n in first)
