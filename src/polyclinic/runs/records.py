"""What stands in the files of a run folder, as typed values."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, PlainSerializer

from polyclinic.runs.files import plain

Split = Literal["val", "test", "watch"]  # the last: test cases looked at while training
ScoredModel = Literal["shared", "trained"]
MapKind = Literal["attention", "classes", "context", "models"]
Rank = Literal["best", "median", "worst", "unscored", "small", "middle", "large"]

# JSON has no word for "not a number": it is written as null.
Number = Annotated[
    float,
    BeforeValidator(lambda value: math.nan if value is None else value),
    PlainSerializer(lambda value: value if math.isfinite(value) else None, when_used="json"),
]


class _Record(BaseModel):
    # A newer version may write more than this one knows.
    model_config = ConfigDict(frozen=True, extra="ignore")


class AboutTask(_Record):
    """The task of a run: its name, its classes and the classes that make up each region."""

    name: str
    classes: tuple[str, ...]
    regions: dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class SiteInfo:
    """What is known of a site: its labels, and how many cases each of its splits has."""

    name: str
    index: int  # position among the sites of the study
    kind: str  # of its labels: "mask" or a weak kind
    train: int
    val: int = 0
    test: int = 0
    annotates: str = ""  # what its masks tell apart, in words, where that is not all of the task
    measured: bool = False  # whether the size of its pixels is known, so that distances are in mm


class AboutMetric(_Record):
    """What tables say of a metric of a run; a share in 0–1 has no unit."""

    title: str
    summary: str
    better: Literal["higher", "lower"]
    unit: str


class About(_Record):
    """What was run, where and with which versions; `started` is a time in ISO 8601.

    `fold` is None without folds, `left_out` is the site that was to be unseen, if any, and `swept`
    what a sweep has set for the run, by key. Its first `shared_rounds` rounds are those of the run
    `shared_with`, where there are any. `pretrained` tells what the network took from a file of
    weights, where there was one, `start` is that file's fingerprint, and `weighting` what sites
    counted by in the average.
    """

    method: str
    seed: int
    fold: int | None = None
    left_out: str | None = None
    swept: dict[str, Any] = {}
    shared_rounds: int = 0
    shared_with: str = ""
    task: AboutTask
    sites: tuple[SiteInfo, ...]
    metrics: dict[str, AboutMetric] = {}
    weighting: str = ""
    network: str
    pretrained: str = ""
    start: str = ""
    parameters: int
    device: str
    threads: int
    started: str
    versions: dict[str, str]


class RoundLine(_Record):
    """What one site did in one stage of a round; `down` and `up` are bytes as sent.

    A site that was left out has the reason in `missed`; `parts` divides what it sent.
    """

    round: int
    stage: str
    site: str
    loss: Number = math.nan
    seconds: float = 0.0
    images: int = 0
    down: int = 0
    up: int = 0
    extras: tuple[str, ...] = ()
    numbers: dict[str, Number] = {}
    parts: dict[str, int] = {}
    missed: Annotated[str, AfterValidator(plain)] = ""


DIAGNOSED = "diagnostics"  # the name of tables with numbers about a method's parts


class RoundTable(_Record):
    """A table that a method's server made in a round, such as how alike the sites are.

    One that is `final` is of the models in use at the end, like test scores.
    """

    round: int
    name: str
    final: bool = False
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: tuple[tuple[Number, ...], ...]


class Score(NamedTuple):
    """One metric of one region of one case, by the weights of a round.

    Weights are those that the site uses in the end, or as it had trained them before the last
    average. Patients are numbered at their site, from 1; 0 is unknown.
    """

    round: int
    split: Split
    site: str
    case: str
    region: str
    metric: str
    value: float
    patient: int = 0
    model: ScoredModel = "shared"


class Finished(_Record):
    """The end of a run: the round whose weights were kept, and how long the run took.

    `predicting` is how many seconds an image takes each site's final model, where it was measured.
    """

    chosen_round: int
    seconds: float
    predicting: dict[str, float] = {}


class AttentionPicture(NamedTuple):
    """A test case and where a network looked at it, or what else `shows` says of its places."""

    name: str
    case: str
    path: Path
    shows: MapKind = "attention"


class Picture(NamedTuple):
    """An image of a test case with its true and its predicted contours."""

    site: str
    rank: Rank
    case: str
    path: Path
