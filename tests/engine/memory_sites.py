"""A second implementation of the loop's sites: numbers in memory, no network and no files."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from polyclinic.config import (
    EvaluationSettings,
    Factory,
    FederationSettings,
    NetworkChoice,
    TrainingSettings,
)
from polyclinic.data.tasks import TASKS
from polyclinic.engine.checkpoint import Checkpoint
from polyclinic.engine.loop import Loop
from polyclinic.engine.run import Assignment
from polyclinic.engine.sites import Reply, Scored
from polyclinic.federation.message import Message
from polyclinic.federation.method import Method
from polyclinic.federation.server import Server
from polyclinic.federation.weights import Weights
from polyclinic.networks.unet import UNet
from polyclinic.runs import RoundLine, Score, SiteInfo

INFOS = tuple(
    SiteInfo(name, index, "mask", images)
    for index, (name, images) in enumerate((("east", 1), ("north", 2), ("west", 5)))
)


@dataclass
class MemorySites:
    """Sites that add their number of images to the weights they get.

    `dice` tells the validation score of a round; `away` the sites that do not answer in a round.
    """

    trained: tuple[SiteInfo, ...] = INFOS
    scored: tuple[SiteInfo, ...] = INFOS
    quorum: float = 1.0
    dice: dict[int, float] = field(default_factory=dict)
    away: dict[int, set[str]] = field(default_factory=dict)
    spoils: float = 0.0  # added to every reply
    asked: list[tuple] = field(default_factory=list)
    scorings: list[tuple] = field(default_factory=list)
    needed: list[list[int]] = field(default_factory=list)

    def ask(self, stage, messages, *, number, since):
        self.asked.append((number, stage.name, tuple(messages), since))
        for site in reversed(messages):  # answers come in any order
            line = RoundLine(round=number, stage=stage.name, site=site)
            if site in self.away.get(number, ()):
                yield site, Reply(None, line.model_copy(update={"missed": "no answer"}))
                continue
            images = next(float(info.train) for info in INFOS if info.name == site)
            weights = messages[site].weights.copy()
            weights.flat.add_(images + self.spoils)
            yield site, Reply(Message(weights, numbers={"images": images, "steps": 1.0}), line)

    def score(self, scoring, messages, *, since):
        number, split = scoring.round, scoring.split
        self.scorings.append((split, number, since, messages is not None))
        for info in self.scored:
            value = self.dice.get(number, 0.5)
            row = Score(number, split, info.name, "case", "region", scoring.metrics[0], value)
            yield Scored(number, split, info.name, (row,))

    def forget(self, needed):
        self.needed.append(list(needed))

    def keep(self, last):
        raise NotImplementedError


def a_loop(folder, sites, *, rounds=3, participation=1.0, method=None, **evaluation):
    """A loop over the sites, whose records are lists."""
    assignment = Assignment(
        method=method or Method(),
        then=(),
        network=NetworkChoice(name="unet", built=Factory(UNet, {})),
        task=TASKS["octa"],
        sites=INFOS,
        training=TrainingSettings(),
        loss=None,
        metrics={},
        rounds=rounds,
        statistics="shared",
        seed=0,
    )
    settings = FederationSettings(rounds=rounds, participation=participation)
    server = Server(INFOS, Weights.pack({"w": torch.zeros(2)}), settings, seed=0)
    recorded: list[tuple] = []
    loop = Loop(
        assignment,
        server,
        sites,
        EvaluationSettings.model_construct(
            **{"every": 1, "metrics": ("dice",), "choose": "best", "pictures": False} | evaluation
        ),
        Checkpoint(folder / "checkpoint"),
        lambda lines, scores, tables: recorded.append((lines, scores, tables)),
    )
    return loop, recorded
