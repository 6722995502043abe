"""One run of a study: a method with a seed, its folder, and what all its machines agree on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, product
from pathlib import Path

import torch

from polyclinic.config import (
    FederationSettings,
    MethodChoice,
    NetworkChoice,
    Study,
    Tables,
    TrainingSettings,
    WeakSettings,
    load_study,
    weighting_of,
)
from polyclinic.data.cases import SiteData
from polyclinic.data.sources import left_out
from polyclinic.data.tasks import Task
from polyclinic.engine.pretraining import Start, pretrain
from polyclinic.evaluation import Metric
from polyclinic.federation.estimating import reestimating
from polyclinic.federation.method import Finish, Method, Stage
from polyclinic.losses import Loss
from polyclinic.masks import group_names
from polyclinic.methods.reestimate import Reestimate
from polyclinic.networks.contract import Segmenter
from polyclinic.networks.parts import Names, statistics
from polyclinic.networks.pretrained import load_pretrained
from polyclinic.networks.two_branches import SECOND, TwoBranches
from polyclinic.runs import RunError, RunFolder, SiteInfo, run_path
from polyclinic.seeds import derive


@dataclass(frozen=True)
class Run:
    """One method with one seed and fold, its folder, and the study narrowed down to it."""

    choice: MethodChoice
    seed: int
    folder: RunFolder
    study: Study

    @property
    def fold(self) -> int | None:
        """The fold of the data; None without folds."""
        return self.study.data.fold

    @property
    def left_out(self) -> str | None:
        """The site that takes no part and is scored as unseen."""
        return self.study.data.leave_out

    @property
    def name(self) -> str:
        """What people call the run."""
        fold = "" if self.fold is None else f" fold {self.fold}"
        without = f" without {self.left_out}" if self.left_out else ""
        return f"{self.choice.title} seed {self.seed}{fold}{without}"


@dataclass(frozen=True)
class Assignment:
    """What all machines of a run agree on, small enough to travel to other processes."""

    method: Method
    then: tuple[Finish, ...]
    network: NetworkChoice
    task: Task
    sites: tuple[SiteInfo, ...]
    training: TrainingSettings
    loss: Loss | None  # None for auto
    metrics: Mapping[str, Metric]
    rounds: int
    statistics: str  # of norm layers: shared, private or estimated
    seed: int
    keeps_trained: bool = False  # sites keep whole networks, to be scored as they trained them

    def __post_init__(self) -> None:
        names = [stage.name for stage in self.stages]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"a run can have only one stage called {', '.join(twice)}")

    @property
    def stages(self) -> tuple[Stage, ...]:
        """All stages of a run, each once."""
        warm = self.method.warm_round() if self.warm_rounds else ()
        return (*self.method.before(), *warm, *self.method.each_round(), *self.after)

    @property
    def warm_rounds(self) -> int:
        """The rounds of the warm start."""
        return self.method.warm_rounds(self.rounds)

    def stages_in(self, number: int) -> tuple[Stage, ...]:
        """The stages of a round."""
        warm = number <= self.warm_rounds
        return self.method.warm_round() if warm else self.method.each_round()

    @property
    def after(self) -> tuple[Stage, ...]:
        """The stages after the last round: finalizing, the method's own, the finishing steps."""
        finishing = chain.from_iterable(piece.stages(self.method) for piece in self.then)
        return (self.finalizing, *self.method.after(), *finishing)

    @property
    def finalizing(self) -> Stage:
        """The stage in which a site takes up the model it will use."""
        stage = self.method.finalizing()
        return reestimating(self.method, stage) if self.statistics == "estimated" else stage

    @property
    def reestimates(self) -> bool:
        """Whether a site that takes up a model computes its statistics anew."""
        return self.statistics == "estimated" or any(isinstance(s, Reestimate) for s in self.then)

    def stage(self, name: str) -> Stage:
        """The stage with this name."""
        return next(stage for stage in self.stages if stage.name == name)

    def first_network(self, device: torch.device) -> tuple[Segmenter, str]:
        """The network as every machine of the run starts with it, and what it has learned before.

        That is what a file of weights holds, what drawn images taught it, or both in this order.
        """
        with torch.random.fork_rng():
            torch.manual_seed(derive(self.seed, "network"))
            net = self.network.built(channels=self.task.channels, classes=len(self.task.classes))
            file, told = self.network.pretrained, []
            if file:
                told.append(str(load_pretrained(net, file)))
            if self.training.pretrain == "synthetic":
                named = f"{self.network.name} {self.network.settings} {file}"
                training = self.training.model_copy(update={"weak": WeakSettings()})
                start = Start(named, self.seed, training, self.task, net, device)
                told.append(pretrain(start))
            net.side = self.task.resolution
            return self._with_branches(self.method.adapt(net, self.sites)), "; ".join(told)

    def _with_branches(self, net: Segmenter) -> Segmenter:
        """The method's network, with a second branch where pseudo labels need one."""
        if not self.training.weak.pseudo_labels or getattr(net, SECOND, None) is not None:
            return net
        if self.method.one_branch or type(self.method).adapt is not Method.adapt:
            raise ValueError(
                f"{type(self.method).__name__} has a network or a loss of its own, in which the "
                "second decoder that training.weak.pseudo_labels needs would not learn; set "
                "weak = { pseudo_labels = 0 } in its entry"
            )
        return TwoBranches(net)

    def shared(self, net: Segmenter, stage: Stage | None = None) -> Names:
        """The weights that travel, in a stage that may say so itself."""
        own = stage and stage.shares
        names = own(net) if own else self.method.shares(net)
        return names if self.statistics == "shared" else names - statistics(net)


def runs_of(study: Study, root: Path) -> list[Run]:
    """All runs of a study: all of the first seed, then all of the second, and so on.

    A method that a swept setting does not concern is run once for all its values.
    """
    found: dict[Path, Run] = {}
    for seed, each in product(study.seeds, study.swept or (study,)):
        without = left_out(each.task.built, each.data, each.site)
        for site, fold, choice in product(without, each.data.each_fold, each.method):
            path = run_path(root, study.name, choice.title, seed, fold, site)
            data = each.data.model_copy(update={"fold": fold, "leave_out": site})
            only = {"method": (choice,), "seeds": (seed,), "data": data}
            found.setdefault(path, Run(choice, seed, RunFolder(path), each.model_copy(update=only)))
    return list(found.values())


def run_in(folder: RunFolder, tables: Tables) -> Run:
    """The finished run in a folder."""
    if not folder.finished:
        raise RunError(f"{folder.path} is not finished: its models are not there yet")
    study = load_study(folder.path / "study.toml", [], tables)
    return Run(study.method[0], study.seeds[0], folder, study)


def assignment_of(run: Run, sites: Sequence[SiteInfo]) -> Assignment:
    """What all machines of a run agree on."""
    study, weak = run.study, run.choice.weak
    return Assignment(
        method=run.choice.built,
        then=tuple(piece.built for piece in run.choice.then),
        network=study.network,
        task=study.task.built,
        sites=tuple(sites),
        # The study's settings, with the terms for weak labels that the method's entry has.
        training=study.training.model_copy(update={"weak": weak} if weak else {}),
        loss=study.loss.built if study.loss else None,
        metrics={metric.name: metric.built for metric in study.metric},
        rounds=study.federation.rounds,
        statistics=study.federation.statistics,
        seed=run.seed,
        keeps_trained=study.evaluation.scores != "shared",
    )


def federation_of(run: Run) -> FederationSettings:
    """The study's settings, with what sites count by in this method's average."""
    federation = run.study.federation
    counts = weighting_of(run.choice.built, run.choice.weighting, federation)
    return federation.model_copy(update={"weighting": counts or "uniform"})


def site_info(data: SiteData, task: Task, index: int = 0) -> SiteInfo:
    """What others may know of a site."""
    train, val, test = (len(split) for split in (data.train, data.val, data.test))
    partly = data.mask_groups or (data.groups[0] if len(data.groups) == 1 else ())
    names = group_names(task.classes, partly).values() if partly else ()
    words = " · ".join(names)
    return SiteInfo(data.name, index, data.kind, train, val, test, words, data.measured)
