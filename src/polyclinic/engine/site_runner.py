"""The site's half of a stage: what happens when a message arrives, the same in every engine."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polyclinic.config import NetworkChoice, TrainingSettings
from polyclinic.data.cases import Cases, SiteData
from polyclinic.data.tasks import Task
from polyclinic.engine.states import SiteState
from polyclinic.evaluation import Metric
from polyclinic.evaluation.scoring import ScoreRow
from polyclinic.federation.estimating import reestimating
from polyclinic.federation.message import Message
from polyclinic.federation.method import Finish, Method, Stage
from polyclinic.federation.scoring import class_maps, score
from polyclinic.federation.site import Site
from polyclinic.federation.weights import Weights, flatten
from polyclinic.losses import Loss
from polyclinic.methods.reestimate import Reestimate
from polyclinic.networks.contract import Segmenter
from polyclinic.networks.parts import Names, everything, statistics
from polyclinic.networks.pretrained import load_pretrained
from polyclinic.runs import SiteInfo
from polyclinic.seeds import derive

SHOWN = 3  # test cases without a mask whose prediction is drawn


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

    def first_network(self) -> tuple[Segmenter, str]:
        """The network as every machine of the run starts with it, and what it has from a file."""
        with torch.random.fork_rng():
            torch.manual_seed(derive(self.seed, "network"))
            net = self.network.built(channels=self.task.channels, classes=len(self.task.classes))
            file = self.network.pretrained
            told = str(load_pretrained(net, file)) if file else ""
            return self.method.adapt(net, self.sites), told

    def shared(self, net: Segmenter, stage: Stage | None = None) -> Names:
        """The weights that travel, in a stage that may say so itself."""
        own = stage and stage.shares
        names = own(net) if own else self.method.shares(net)
        return names if self.statistics == "shared" else names - statistics(net)


@dataclass(frozen=True)
class Visit:
    """What came of a visit: the reply, the state to keep, and what it took."""

    reply: Message
    state: SiteState
    seconds: float
    images: int
    loss: float


class SiteRunner:
    """A machine that works for sites, one after another, with one network."""

    def __init__(self, assignment: Assignment, device: torch.device) -> None:
        self.assignment = assignment
        self.device = device
        net, self.pretrained = assignment.first_network()
        self.net = net.to(device=device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.weights = flatten(self.net)
        self.initial = self.weights.copy()
        self.everything = everything(self.net)
        self.shared = assignment.shared(self.net)
        for stage in assignment.stages:
            if stage.check:
                stage.check(self.net)
        self.kept = assignment.method.keeps(self.net) | (self.everything - self.shared)

    def shared_in(self, stage: Stage) -> Names:
        """The weights that travel in a stage."""
        return self.assignment.shared(self.net, stage)

    def first_weights(self, stage: Stage | None = None) -> Weights:
        """The weights that are shared, or shared in this stage, before the first round."""
        return self.initial.pick(self.shared_in(stage) if stage else self.shared)

    def visit(
        self,
        info: SiteInfo,
        data: SiteData,
        stage: Stage,
        message: Message,
        state: SiteState | None,
        number: int,
    ) -> Visit:
        """Do a site's work of one stage in round `number`."""
        started = time.perf_counter()
        site = self._site(info, data, stage, message, state, number)
        reply = stage.work(site)
        leaked = sorted(reply.weights.names - site.shared)
        assert not leaked, f"stage {stage.name} sends what it does not share: {leaked[:3]}"
        steps = sum(f.steps for f in site.fits if f.trains)
        numbers = {**reply.numbers, "images": float(info.train), "steps": float(steps)}
        told = [f for f in site.fits if f.stream == "main"] or site.fits  # losses of one kind
        steps_told = sum(f.steps for f in told)
        loss = sum(f.loss * f.steps for f in told) / steps_told if steps_told else float("nan")
        kept = site.take(self.everything if stage.finalizes else self.kept)
        return Visit(
            reply=replace(reply, numbers=numbers),
            state=SiteState(kept, site.memory),
            seconds=time.perf_counter() - started,
            images=sum(f.images for f in site.fits),
            loss=loss,
        )

    def score(
        self,
        info: SiteInfo,
        data: SiteData,
        split: str,
        metrics: Sequence[str],
        message: Message | None,
        state: SiteState | None,
        number: int,
    ) -> tuple[list[ScoreRow], Cases, NDArray[np.uint8]]:
        """Score a site's model on a split; with a message it finalizes first. Nothing is kept.

        Gives a row for each case, region and metric, the cases that have a mask to score with, and
        the classes predicted for them. Where no test case can be scored, a few are predicted.
        """
        stage = self.assignment.finalizing
        site = self._site(info, data, stage, message or Message(), state, number)
        if message is not None:
            stage.work(site)
        method, chosen = self.assignment.method, self.assignment.metrics
        cases = data.scorable(split, self.assignment.task.regions)
        if split == "test" and not len(cases):
            shown = data.test.select(range(min(SHOWN, len(data.test))))
            return [], shown, class_maps(method, site, shown)
        rows, predicted = score(method, site, cases, metrics, chosen)
        return rows, cases, predicted

    def opened(self, info: SiteInfo, data: SiteData, state: SiteState | None) -> Site:
        """The site with the model it has, or with the first weights, to look at."""
        method, number = self.assignment.method, self.assignment.rounds + 1
        return self._site(info, data, method.finalizing(), Message(), state, number)

    def _site(
        self,
        info: SiteInfo,
        data: SiteData,
        stage: Stage,
        message: Message,
        state: SiteState | None,
        number: int,
    ) -> Site:
        self.weights.load(self.initial if state is None else state.weights)
        memory: dict[str, Tensor] = {}
        if state is not None:
            self._refuse_undefined(stage, state, message)
            memory = {name: tensor.to(self.device) for name, tensor in state.memory.items()}
        return Site(
            info=info,
            sites=self.assignment.sites,
            data=data,
            task=self.assignment.task,
            net=self.net,
            weights=self.weights,
            shared=self.shared_in(stage),
            training=self.assignment.training,
            seed=self.assignment.seed,
            round=number,
            rounds=self.assignment.rounds,
            stage=stage.name,
            message=message,
            memory=memory,
            first=state is None,
            loss=self.assignment.loss,
        )

    def _refuse_undefined(self, stage: Stage, state: SiteState, message: Message) -> None:
        undefined = self.everything - set(state.weights) - message.weights.names
        if undefined and stage.finalizes and not message.weights:
            raise ValueError(
                f"the site has no whole model for stage {stage.name}: it was away when the others "
                "took up theirs after the last round"
            )
        assert not undefined, (
            f"stage {stage.name} neither keeps nor receives {sorted(undefined)[:3]}: "
            f"{type(self.assignment.method).__name__}.keeps() must name them"
        )
