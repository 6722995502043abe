"""The site's half of a stage: what happens when a message arrives, the same in every engine."""

import time
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polyclinic.data.cases import Cases, SiteData
from polyclinic.engine.run import Assignment
from polyclinic.engine.states import SiteState
from polyclinic.evaluation.scoring import ScoreRow
from polyclinic.federation.diagnosing import diagnose
from polyclinic.federation.message import Message
from polyclinic.federation.method import Stage
from polyclinic.federation.scoring import class_maps, score
from polyclinic.federation.site import Site
from polyclinic.federation.weights import Weights, flatten
from polyclinic.networks.parts import Names, everything
from polyclinic.runs import ScoredModel, SiteInfo, Split

SHOWN = 3  # test cases without a mask whose prediction is drawn


@dataclass(frozen=True)
class Scoring:
    """What is to be scored: metrics of a split, after a round."""

    round: int
    split: Split
    metrics: tuple[str, ...]
    model: ScoredModel = "shared"  # or as the site trained it in that round


class Scores(NamedTuple):
    """A row for each case, region and metric, and what they were made from.

    That is the cases that have a mask to score with, and the classes predicted for them; `notes`
    are numbers about the method's parts.
    """

    rows: list[ScoreRow]
    cases: Cases
    predicted: NDArray[np.uint8]
    notes: dict[str, float]


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
        net, self.pretrained = assignment.first_network(device)
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
        whole = stage.finalizes or self.assignment.keeps_trained
        kept = site.take(self.everything if whole else self.kept)
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
        scoring: Scoring,
        message: Message | None,
        state: SiteState | None,
    ) -> Scores:
        """Score a site's model; with a message it finalizes first. Nothing is kept.

        Where no test case can be scored, a few are predicted all the same, and what notes need no
        masks is noted on training images. A site that never trained has no model as trained, hence
        no scores of it.
        """
        if scoring.model == "trained" and state is None:
            none = data.test.select([])
            return Scores([], none, none.masks.numpy(), {})
        stage = self.assignment.finalizing
        site = self._site(info, data, stage, message or Message(), state, scoring.round)
        if message is not None:
            stage.work(site)
        method, chosen = self.assignment.method, self.assignment.metrics
        cases = data.scorable(scoring.split, self.assignment.task.regions)
        used = scoring.model == "shared"
        if not len(cases):
            shown = SHOWN if scoring.split == "test" else 0
            cases = data.test.select(range(min(shown, len(data.test))))
            notes = diagnose(method, site, data.train) if used else {}
            return Scores([], cases, class_maps(method, site, cases), notes)
        rows, predicted = score(method, site, cases, scoring.metrics, chosen)
        notes = diagnose(method, site, cases, predicted) if used else {}
        return Scores(rows, cases, predicted, notes)

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
