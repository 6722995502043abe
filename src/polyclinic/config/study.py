"""The settings of a study: one frozen model for each section of its TOML file."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, ValidationInfo, field_validator

from polyclinic.config.chosen import Choice, MethodChoice, NetworkChoice, TaskChoice, Weighting
from polyclinic.config.data_settings import DataSettings, SiteSettings
from polyclinic.config.engine_settings import EngineSettings
from polyclinic.config.section import (
    AtLeastOne,
    Count,
    FolderName,
    Positive,
    Section,
    Share,
    known_in,
    unique,
)
from polyclinic.config.weak_settings import WeakSettings


class AugmentationSettings(Section):
    """How training images are varied; rotation in degrees, uniform in ±rotation."""

    flips: bool = True
    """Mirror each axis with probability ½."""
    rotation: Annotated[float, Field(ge=0, le=180)] = 45.0
    """Rotate every second image by up to this many degrees; 0 is off."""
    quarter_turns: bool = False
    """Add 0 to 3 exact quarter turns."""
    gamma: Annotated[float, Field(ge=0)] = 0.0
    """Every second image to a power of up to 1 + this, or its inverse; 0 is off."""
    contrast: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Contrast of every second image by a factor of 1 ± up to this; 0 is off."""
    noise: Share = 0.0
    """Noise in every second image, of a deviation up to this share of its range; 0 is off."""
    blur: Annotated[float, Field(ge=0, le=16)] = 0.0
    """Blur every second image by a Gaussian of up to this many pixels; 0 is off."""
    low_resolution: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Take up to this share of its resolution from every second image; 0 is off."""

    @property
    def changes_looks(self) -> bool:
        """Whether images differ in more than how they lie."""
        return any((self.gamma, self.contrast, self.noise, self.blur, self.low_resolution))


class TrainingSettings(Section):
    """How a site trains in one round."""

    needs: ClassVar = {
        "momentum": ("optimizer", "sgd"),
        "power": ("schedule", "poly"),
        "pretrain_steps": ("pretrain", "synthetic"),
    }

    optimizer: Literal["adam", "adamw", "sgd"] = "adamw"
    """The optimizer of every site."""
    learning_rate: Positive = 0.01
    """The learning rate at the start of the schedule."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.01
    """Weight decay of the optimizer."""
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """Momentum of SGD."""
    schedule: Literal["poly", "cosine", "constant"] = "poly"
    """How the rate falls over the rounds."""
    power: Positive = 0.9
    """Exponent of the poly schedule."""
    batch: AtLeastOne = 12
    """Images per step."""
    epochs: AtLeastOne | None = None
    """Passes over a site's images per round, in place of `iterations`."""
    iterations: AtLeastOne | None = Field(
        default_factory=lambda given: None if given.get("epochs") else 10
    )
    """Steps per round."""
    loss: Annotated[str, known_in("loss", "auto")] = "auto"
    """`auto` is cross entropy plus Dice on full masks, cross entropy alone on weak labels."""
    clip_norm: Positive | None = None
    """Bound on the L2 norm of all gradients together; off by default."""
    clip_value: Positive | None = None
    """Bound on each gradient by itself; off by default."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """`auto` is bfloat16 on accelerators and float32 on the CPU."""
    keep_optimizer: bool = False
    """Keep the optimizer's state from one round to the next."""
    augmentation: AugmentationSettings = Field(default_factory=AugmentationSettings)
    """How training images are varied."""
    weak: WeakSettings = Field(default_factory=WeakSettings)
    """What stands in for missing labels where they are weak, whatever the method."""
    pretrain: Literal["none", "synthetic"] = "none"
    """`synthetic` trains the network on drawn images of the task before the first round."""
    pretrain_steps: AtLeastOne = 600
    """Steps of that training."""

    @field_validator("iterations")
    @classmethod
    def _no_second_budget(cls, iterations: int | None, info: ValidationInfo) -> int | None:
        epochs = info.data.get("epochs")
        if iterations is not None and epochs is not None:
            raise ValueError(f"stands beside epochs = {epochs}; give exactly one of the two")
        return iterations


class FederationSettings(Section):
    """How often, with whom and by what rule and weights the sites are combined.

    With a rule other than the mean sites count alike.
    """

    needs: ClassVar = {
        "weighting": ("combine", "mean"),
        "uniform_row": ("combine", "mean"),
        "bound": ("combine", "bounded"),
    }

    rounds: AtLeastOne = 20
    """Number of rounds."""
    combine: Literal["mean", "median", "trimmed", "krum", "bounded"] = "mean"
    """How replies become one; all but the mean withstand some hostile sites."""
    hostile: Annotated[int, Field(ge=0, validate_default=True)] = 0
    """How many sites may answer whatever they like: for median, trimmed and krum."""
    bound: Positive = 1.0
    """Longest change of a reply in multiples of the median one: for bounded."""
    weighting: Weighting = "samples"
    """What sites count by in averages: images, all alike, steps, or as in a method's paper."""
    uniform_row: bool = True
    """Add FedAvg with equal weights where methods with equal weights stand beside one without."""
    participation: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Share of the sites drawn for each round."""
    statistics: Literal["shared", "private", "estimated"] = "shared"
    """Running statistics of norm layers: averaged, kept at the site, or estimated anew there."""

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
    """Validate every so many rounds and after the last; 0 is after the last only."""
    metrics: tuple[Annotated[str, known_in("metric")], ...] = ("dice", "iou", "hd", "hd95", "assd")
    """Metrics of the test scores."""
    validation: tuple[Annotated[str, known_in("metric")], ...] = ("dice",)
    """Metrics of the validation scores, by round; Dice is always among them and alone chooses."""
    watch: tuple[Annotated[str, known_in("metric")], ...] = ()
    """Metrics of test cases by round, for learning curves only; sites on this machine."""
    choose: Literal["best", "last"] = "best"
    """The round to use: the best by validation, or the last."""
    scores: Literal["shared", "trained", "both"] = "shared"
    """Models in tables: after the last average, as their sites trained them before it, or both."""
    pictures: bool = True
    """Draw example predictions, embeddings and attention for the report."""
    cross_site: bool = False
    """Score every site's model at every site, too; across hospitals those that disclose theirs."""

    @property
    def validated(self) -> tuple[str, ...]:
        """The metrics of validation, Dice first."""
        return ("dice", *(name for name in self.validation if name != "dice"))

    def due(self, number: int, last: int) -> bool:
        """Whether models are validated after this round, of so many."""
        return 0 < number <= last and (
            number == last or bool(self.every and number % self.every == 0)
        )

    @field_validator("metrics", "validation", "watch")
    @classmethod
    def _each_once(cls, metrics: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        return unique(metrics) if metrics or info.field_name != "watch" else metrics


class Conditions(Section):
    """All of a study that is not a choice from a table."""

    name: FolderName
    """The study's name and its folder under runs/; by default the file's name."""
    seeds: tuple[Count, ...] = (0,)
    """Each seed makes a run of its own; seeds do not change the data."""
    data: DataSettings = Field(default_factory=DataSettings)
    """Where the cases come from."""
    site: tuple[SiteSettings, ...] = ()
    """What differs at single sites, and sites that are not in the source."""
    training: TrainingSettings = Field(default_factory=TrainingSettings)
    """How a site trains."""
    federation: FederationSettings = Field(default_factory=FederationSettings)
    """How sites are combined."""
    evaluation: EvaluationSettings = Field(default_factory=EvaluationSettings)
    """What is scored, and when."""
    engine: EngineSettings = Field(default_factory=EngineSettings)
    """What carries the messages."""

    @field_validator("seeds")
    @classmethod
    def _each_once(cls, seeds: tuple[int, ...]) -> tuple[int, ...]:
        return unique(seeds)


class Study(Conditions):
    """A whole study: one task and network, one or several methods, each run with every seed.

    Everything is built that `training.loss` (None for auto) and `evaluation.metrics` name, too, and
    `swept` holds the study of each combination of a sweep.
    """

    task: TaskChoice
    """What is segmented, and at which resolution."""
    network: NetworkChoice
    """The network, by default `unet`, with its own settings beside the name."""
    method: tuple[MethodChoice, ...]
    """One method or several, each with its own settings beside the name."""
    sweep: dict[str, tuple[Any, ...]] = Field(default_factory=dict)
    """Settings that take several values, by dotted key: all combinations make runs."""
    loss: Choice | None = Field(default=None, exclude=True)
    metric: tuple[Choice, ...] = Field(default=(), exclude=True)
    swept: "tuple[Study, ...]" = Field(default=(), exclude=True)

    @property
    def choices(self) -> tuple[Choice, ...]:
        """All that the study names."""
        steps = [step for choice in self.method for step in choice.then]
        losses = (self.loss,) if self.loss else ()
        return (self.task, self.network, *self.method, *steps, *losses, *self.metric)

    @property
    def packages(self) -> dict[str, str]:
        """The packages whose code the study needs beside Polyclinic, with their versions."""
        origins = (choice.origin for choice in self.choices)
        return {origin.package: origin.version for origin in origins if origin.package}

    @property
    def files(self) -> list[str]:
        """The names that mean code in files of this machine."""
        return [choice.name for choice in self.choices if choice.origin.file]
