"""The one round loop: messages to the sites, replies combined, a checkpoint after every round."""

import math
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from polyclinic.config import EvaluationSettings
from polyclinic.engine.checkpoint import Checkpoint, Progress
from polyclinic.engine.reply_store import ReplyStore
from polyclinic.engine.run import Assignment
from polyclinic.engine.site_runner import Scoring
from polyclinic.engine.sites import Scored, Sites, diagnostics
from polyclinic.evaluation.diagnostics import warnings_of
from polyclinic.federation.message import Message
from polyclinic.federation.method import Stage
from polyclinic.federation.server import Server
from polyclinic.federation.site import TrainingFailed
from polyclinic.federation.weights import LARGEST, absurd
from polyclinic.runs import RoundLine, RoundTable, Score, SiteInfo
from polyclinic.seeds import torch_generator


@dataclass(frozen=True)
class RoundDone:
    """A round is finished and safe on disk."""

    round: int
    validation: float | None  # mean Dice over sites, in rounds that were validated


@dataclass(frozen=True)
class Notice:
    """Something about the run itself that whoever watches it should know."""

    text: str


@dataclass(frozen=True)
class Reused:
    """The run need not be done: this one of another study is the same."""

    other: str


Event = RoundLine | Scored | RoundDone | Notice | Reused
Record = Callable[[Sequence[RoundLine], Sequence[Score], Sequence[RoundTable]], None]


class TooFewSites(ValueError):
    """So few sites answered that a round would not mean anything."""


@dataclass
class Loop:
    """One run of one method: before, each round, after, and the final scores."""

    assignment: Assignment
    server: Server
    sites: Sites
    evaluation: EvaluationSettings
    checkpoint: Checkpoint
    record: Record

    def __post_init__(self) -> None:
        self.method = self.assignment.method
        self.replies = ReplyStore(self.checkpoint.folder / "replies")
        self.progress = Progress(round=-1)
        self.lines: list[RoundLine] = []
        self.scores: list[Score] = []
        self.predicting: dict[str, float] = {}  # seconds an image takes, by site

    def run(self) -> Iterator[Event]:
        """Everything from where the checkpoint stands to the final scores, event by event."""
        started = time.perf_counter()
        if self.checkpoint.exists:
            self.progress = self.checkpoint.load(self.server)
            started -= self.progress.seconds
            for text in self.checkpoint.damaged:
                yield Notice(f"{text}; the run goes on from round {self.progress.round}")
            self._keep_needed()  # told before anything else is asked: sites remove the rest
        else:
            self.method.start(self.server)
        rounds = self.assignment.rounds
        for number in range(self.progress.round + 1, rounds + 2):
            self.server.round = number
            if number == 0:
                yield from self._stages(self.method.before(), self.sites.trained, number, -1)
            elif number <= rounds:
                stages = self.assignment.stages_in(number)
                yield from self._stages(stages, self._present(number), number, number - 1)
            else:
                yield from self._close(number)
            validation = yield from self._validate(number)
            self._save(number, time.perf_counter() - started)
            yield RoundDone(number, validation)
        final = Scoring(self.chosen_round, "test", self.evaluation.metrics)
        yield from self._score(final, None, since=rounds + 1)
        if self.assignment.keeps_trained and not self.method.pools:
            yield from self._score(replace(final, model="trained"), None, since=self.chosen_round)
        self._record()

    @property
    def chosen_round(self) -> int:
        """The round whose weights are used: the last, or the best by validation."""
        best = self.progress.best_round
        return best if self.evaluation.choose == "best" and best >= 0 else self.assignment.rounds

    def _close(self, number: int) -> Generator[Event, None, None]:
        """Take up the chosen round, finalize, and do what comes after."""
        if self.chosen_round != self.assignment.rounds:
            self.checkpoint.load_round(self.server, self.chosen_round)
            self.server.round = number
        stages = self.assignment.after
        yield from self._stages(stages, self.sites.scored, number, self.chosen_round)

    def _stages(
        self, stages: Sequence[Stage], infos: Sequence[SiteInfo], number: int, since: int
    ) -> Generator[Event, None, None]:
        for stage in stages:
            groups = [[info] for info in infos] if stage.ring else [infos]
            missed: dict[str, str] = {}
            for group in groups:
                messages = {info.name: stage.message(self.server, info) for info in group}
                try:
                    replies = yield from self._ask(stage, messages, number, since, missed)
                    self._refuse_too_few(missed, len(infos), f"round {number}, stage {stage.name}")
                    if replies:
                        stage.combine(self.server, replies)
                        self._refuse_spoilt(number, stage)
                finally:
                    self.replies.clear()
            since = number

    def _ask(
        self,
        stage: Stage,
        messages: Mapping[str, Message],
        number: int,
        since: int,
        missed: dict[str, str],
    ) -> Generator[Event, None, dict[str, Message]]:
        """The replies, in the order of the messages; who is left out is added to `missed`."""
        replies = {}
        for site, reply in self.sites.ask(stage, messages, number=number, since=since):
            self.lines.append(reply.line)
            yield reply.line
            if reply.message is None:
                missed[site] = reply.line.missed
                continue
            if not torch.isfinite(reply.message.weights.flat).all():
                raise TrainingFailed(
                    f"site {site} answered with weights that are not numbers in round {number}, "
                    f"stage {stage.name}; the weights of the round before are kept"
                )
            # What is private to a site is disclosed, and never written to a file of the server.
            replies[site] = (
                reply.message if stage.discloses else self.replies.store(site, reply.message)
            )
        return {site: replies[site] for site in messages if site in replies}

    def _refuse_too_few(self, missed: Mapping[str, str], count: int, where: str) -> None:
        needed = max(1, math.ceil(self.sites.quorum * count))
        if count - len(missed) < needed:
            reasons = "\n".join(f"  {site}: {reason}" for site, reason in missed.items())
            raise TooFewSites(
                f"only {count - len(missed)} of {count} sites answered in {where}, and "
                f"{needed} are needed; the round before is kept\n{reasons}"
            )

    def _refuse_spoilt(self, number: int, stage: Stage) -> None:
        """Stop before combined weights that no site could use replace those of the round before."""
        weights = self.server.weights
        memory = [t for t in self.server.memory.values() if t.is_floating_point()]
        sound = all(bool(torch.isfinite(tensor).all()) for tensor in (weights.flat, *memory))
        if not sound or absurd(weights):
            raise TrainingFailed(
                f"the weights combined in round {number}, stage {stage.name}, are not finite or "
                f"beyond ±{LARGEST:g}; the weights of the round before are kept"
            )

    def _validate(self, number: int) -> Generator[Event, None, float | None]:
        if not self.evaluation.due(number, self.assignment.rounds):
            return None
        finalizing = self.method.finalizing()
        messages = {info.name: finalizing.message(self.server, info) for info in self.sites.scored}
        validation = Scoring(number, "val", self.evaluation.validated)
        means = yield from self._score(validation, messages, since=number)
        if self.evaluation.watch:  # last, and nothing is made of it
            watched = Scoring(number, "watch", self.evaluation.watch)
            yield from self._score(watched, messages, since=number)
        if not means:
            return None
        mean = float(np.mean(means))
        if mean > self.progress.best_score and number > self.assignment.warm_rounds:
            self.progress = replace(self.progress, best_round=number, best_score=mean)
        return mean

    def _score(
        self, scoring: Scoring, messages: Mapping[str, Message] | None, *, since: int
    ) -> Generator[Event, None, list[float]]:
        """Score all sites; gives the mean Dice of each that has cases."""
        means, missed, notes = [], {}, {}
        for scored in self.sites.score(scoring, messages, since=since):
            self.scores += scored.rows
            if scored.predicting is not None:
                self.predicting[scored.site] = scored.predicting
            if scored.notes:
                notes[scored.site] = scored.notes
            if scored.missed:
                missed[scored.site] = scored.missed
                where = {"round": scoring.round, "stage": f"score {scoring.split}"}
                self.lines.append(RoundLine(**where, site=scored.site, missed=scored.missed))
            if values := [row.value for row in scored.rows if row.metric == "dice"]:
                means.append(float(np.mean(values)))
            yield scored
        where_told = f"the scoring of round {scoring.round}"
        self._refuse_too_few(missed, len(self.sites.scored), where_told)
        if notes and scoring.split != "watch":
            self.server.tables.append(diagnostics(scoring, notes))
        if scoring.split == "test":
            yield from map(Notice, warnings_of(notes))
        return means

    def _save(self, number: int, seconds: float) -> None:
        self._record()  # first, so that no finished round lacks its record
        self.progress = replace(self.progress, round=number, seconds=seconds)
        self.checkpoint.save(self.server, self.progress)
        self._keep_needed()

    def _keep_needed(self) -> None:
        """Let the sites remove the states that nothing from here on can ask for."""
        self.sites.forget(sorted({self.chosen_round, *self.checkpoint.needed}))

    def _record(self) -> None:
        self.record(self.lines, self.scores, self.server.tables)
        self.lines, self.scores, self.server.tables = [], [], []

    def _present(self, number: int) -> list[SiteInfo]:
        """The sites of a round: all, or a share of them drawn anew each round."""
        infos = self.sites.trained
        count = max(1, round(self.server.settings.participation * len(infos)))
        rng = torch_generator(self.assignment.seed, number, "participation")
        drawn = {*torch.randperm(len(infos), generator=rng)[:count].tolist()}
        return [info for info in infos if info.index in drawn] if count < len(infos) else [*infos]
