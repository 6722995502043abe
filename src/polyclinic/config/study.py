"""The settings of a study: one frozen model for each section of its TOML file."""

import math
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator

from polyclinic.config.section import (
    AtLeastOne,
    Count,
    Device,
    FolderName,
    Positive,
    Section,
    Share,
    known_in,
    unique,
)


def _three(split: Any) -> Any:
    if isinstance(split, list | tuple) and len(split) != 3:
        raise ValueError("must be three shares: train, val, test")
    return tuple(split) if isinstance(split, list) else split


LabelKind = Annotated[str, known_in("kind", "mask")]
"""What sites train on: full masks or a kind of weak label."""


class DataSettings(Section):
    """Where the cases come from and how they are divided by patient."""

    needs: ClassVar = {"size": ("source", "synthetic")}

    source: str = "synthetic"
    seed: Count = 0
    size: Positive = 1.0
    split: Annotated[tuple[Share, Share, Share], BeforeValidator(_three)] = (0.7, 0.1, 0.2)
    folds: Count = 0
    fold: Count = 0

    @property
    def folder(self) -> Path | None:
        """The folder that holds one folder per site; None for synthetic sites."""
        return None if self.source == "synthetic" else Path(self.source)

    @field_validator("split")
    @classmethod
    def _sums_to_one(cls, split: tuple[float, ...]) -> tuple[float, ...]:
        if not math.isclose(sum(split), 1, abs_tol=1e-6):
            raise ValueError(f"must sum to 1 (train, val, test), not {sum(split):g}")
        if split[0] == 0:
            raise ValueError("leaves nothing to train on: the first share must be above 0")
        return split

    @field_validator("folds")
    @classmethod
    def _two_folds_or_none(cls, folds: int) -> int:
        if folds == 1:
            raise ValueError("must be 0 (off) or at least 2")
        return folds

    @field_validator("fold")
    @classmethod
    def _one_of_the_folds(cls, fold: int, info: ValidationInfo) -> int:
        folds = info.data.get("folds", math.inf)
        if folds == 0 and fold > 0:
            raise ValueError("has no effect with folds = 0")
        if 0 < folds <= fold:
            raise ValueError(f"must be below folds, so one of 0 to {folds - 1}")
        return fold


class SiteSettings(Section):
    """One site: where its cases lie, if not in the common folder, and what it trains on."""

    name: FolderName
    folder: Path | None = None
    labels: LabelKind | None = None


class AugmentationSettings(Section):
    """How training images are varied; rotation in degrees, uniform in ±rotation."""

    flips: bool = True
    rotation: Annotated[float, Field(ge=0, le=180)] = 45.0
    quarter_turns: bool = False


class TrainingSettings(Section):
    """How a site trains in one round."""

    needs: ClassVar = {"momentum": ("optimizer", "sgd"), "power": ("schedule", "poly")}

    optimizer: Literal["adam", "adamw", "sgd"] = "adamw"
    learning_rate: Positive = 0.01
    weight_decay: Annotated[float, Field(ge=0)] = 0.01
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    schedule: Literal["poly", "cosine", "constant"] = "poly"
    power: Positive = 0.9
    batch: AtLeastOne = 12
    epochs: AtLeastOne | None = None
    iterations: AtLeastOne | None = Field(
        default_factory=lambda given: None if given.get("epochs") else 10
    )
    loss: Literal["auto", "ce", "dice", "ce+dice"] = "auto"
    clip_norm: Positive | None = None
    clip_value: Positive | None = None
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    keep_optimizer: bool = False
    augmentation: AugmentationSettings = Field(default_factory=AugmentationSettings)

    @field_validator("iterations")
    @classmethod
    def _no_second_budget(cls, iterations: int | None, info: ValidationInfo) -> int | None:
        epochs = info.data.get("epochs")
        if iterations is not None and epochs is not None:
            raise ValueError(f"stands beside epochs = {epochs}; give exactly one of the two")
        return iterations


class FederationSettings(Section):
    """How often, with whom and by what rule and weights the sites are combined.

    With a rule other than the mean sites count alike, and so many as `hostile` says may answer
    whatever they like; `bound` is the longest change in multiples of the median one.
    """

    needs: ClassVar = {"weighting": ("combine", "mean"), "bound": ("combine", "bounded")}

    rounds: AtLeastOne = 20
    combine: Literal["mean", "median", "trimmed", "krum", "bounded"] = "mean"
    hostile: Annotated[int, Field(ge=0, validate_default=True)] = 0
    bound: Positive = 1.0
    weighting: Literal["samples", "uniform", "steps"] = "samples"
    participation: Annotated[float, Field(gt=0, le=1)] = 1.0
    statistics: Literal["shared", "private"] = "shared"

    @field_validator("hostile")
    @classmethod
    def _as_the_rule_needs(cls, hostile: int, info: ValidationInfo) -> int:
        rule = info.data.get("combine", "median")
        if hostile and rule in ("mean", "bounded"):
            raise ValueError(f'has no effect with combine = "{rule}"; it needs another rule')
        if not hostile and rule in ("trimmed", "krum"):
            raise ValueError(f'must be at least 1 with combine = "{rule}"')
        return hostile


class EvaluationSettings(Section):
    """What is scored, how often (0 = only at the end), and which round is kept."""

    every: Count = 5
    metrics: tuple[Annotated[str, known_in("metric")], ...] = ("dice", "iou", "hd", "hd95", "assd")
    choose: Literal["best", "last"] = "best"
    pictures: bool = True

    @field_validator("metrics")
    @classmethod
    def _each_once(cls, metrics: tuple[str, ...]) -> tuple[str, ...]:
        return unique(metrics)


class EngineSettings(Section):
    """What carries the messages; threads = 0 divides all cores among the workers.

    With Flower each site has its own device and threads; a stage takes at most `deadline` seconds,
    a site that cannot be reached is waited for `patience` seconds once the others have answered,
    the study stops where less than the `quorum`'s share of the sites answers, and at most so many
    sites as `at_once` says work at the same time, for machines and lines that cannot bear them all.
    """

    needs: ClassVar = {
        **dict.fromkeys(("workers", "threads", "device"), ("name", "local")),
        **dict.fromkeys(
            ("encoding", "quorum", "deadline", "patience", "at_once"), ("name", "flower")
        ),
    }

    name: Literal["local", "flower"] = "local"
    workers: AtLeastOne = 1
    threads: Count = 0
    device: Device = "auto"
    encoding: Literal["float32", "float16", "bfloat16", "difference"] = "float32"
    quorum: Annotated[float, Field(gt=0, le=1)] = 0.5
    deadline: Positive = 14400.0
    patience: Positive = 180.0
    at_once: AtLeastOne | None = None


class Choice(Section):
    """A name from a table and all settings of what it names, defaults filled in."""

    name: str
    settings: dict[str, Any] = Field(default_factory=dict)


class NetworkChoice(Choice):
    """A network, and the file of weights that it starts from where not from the seed alone."""

    pretrained: Path | None = None


class MethodChoice(Choice):
    """A method, its name in tables and folders, and the finishing steps after the last round.

    With `labels` every site trains on these instead of its own kind.
    """

    title: str
    labels: str | None = None
    then: tuple[Choice, ...] = ()


class Conditions(Section):
    """All of a study that is not a choice from a table."""

    name: FolderName
    seeds: tuple[Count, ...] = (0,)
    data: DataSettings = Field(default_factory=DataSettings)
    site: tuple[SiteSettings, ...] = ()
    training: TrainingSettings = Field(default_factory=TrainingSettings)
    federation: FederationSettings = Field(default_factory=FederationSettings)
    evaluation: EvaluationSettings = Field(default_factory=EvaluationSettings)
    engine: EngineSettings = Field(default_factory=EngineSettings)

    @field_validator("seeds")
    @classmethod
    def _each_once(cls, seeds: tuple[int, ...]) -> tuple[int, ...]:
        return unique(seeds)


class Study(Conditions):
    """A whole study: one task and network, one or several methods, each run with every seed."""

    task: Choice
    network: NetworkChoice
    method: tuple[MethodChoice, ...]
