"""What a model package says of itself, as typed values; the file is `model.json`."""

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, field_serializer

from polyclinic.data.formats.volume import Axis
from polyclinic.data.tasks import Task
from polyclinic.evaluation import Metric
from polyclinic.evaluation.intervals import bootstrap_interval
from polyclinic.runs import AboutMetric

FORMAT = 1  # raised when older versions can no longer read a package


class Facts(BaseModel):
    """Something that a package says."""

    # A newer version of the same format may say more than this one knows.
    # No interval is written "NaN", which all versions read as a number.
    model_config = ConfigDict(frozen=True, extra="ignore", ser_json_inf_nan="strings")


class Member(Facts):
    """One trained network: where it comes from."""

    study: str
    study_hash: str  # SHA-256 of the run's resolved settings
    method: str
    network: str
    seed: int
    round: int  # whose weights were kept
    site: str  # whose model it is; "server" is the one the sites share
    parameters: int


class SiteFacts(Facts):
    """A site that took part: its labels and its numbers of cases."""

    name: str
    labels: str
    train: int
    val: int
    test: int


class ScoreFacts(Facts):
    """One metric of one region at one site: mean over test cases, 95 % interval, numbers.

    The interval is NaN where patients are too few. One case in ten is worse than `worst_tenth`.
    """

    site: str
    region: str
    metric: str
    title: str
    unit: str
    better: str
    mean: float
    low: float
    high: float
    worst_tenth: float
    cases: int
    patients: int

    @classmethod
    def of(
        cls,
        place: Sequence[str],
        about: Metric | AboutMetric,
        values: Sequence[float],
        patients: Sequence[Hashable],
    ) -> "ScoreFacts":
        """The facts of the values of a metric at a place: site, region and the metric's name."""
        site, region, metric = place
        low, high = bootstrap_interval(values, patients)
        return cls(
            site=site,
            region=region,
            metric=metric,
            title=about.title,
            unit=about.unit,
            better=about.better,
            mean=float(np.mean(values)),
            low=low,
            high=high,
            worst_tenth=float(np.quantile(values, 0.1 if about.better == "higher" else 0.9)),
            cases=len(values),
            patients=len(set(patients)),
        )


class Limit(Facts):
    """What a measure of doubt is in the middle of known cases, and what is unusual."""

    middle: float
    limit: float


class QualityFacts(Facts):
    """What predictions and images looked like on cases that the model did not train on."""

    cases: int
    split: str  # where the cases come from: val, or train where there is no other
    histogram: tuple[float, ...] = ()  # of the normalised training images, channel by channel
    images: int = 0  # that the histogram is of
    sizes: dict[str, Limit] = {}  # region → its share of the image
    limits: dict[str, Limit] = {}  # measure of doubt → its usual values


class PackageFacts(Facts):
    """All that a package says of itself."""

    format: int = FORMAT
    title: str
    task: Task
    colours: dict[str, str]  # class → #rrggbb
    spacing: tuple[float, float] | None = None  # of the training images, rows and columns
    axis: Axis | None = None  # along which the site cuts volumes; None: as the format has it
    stored_window: bool = False  # whether it sees DICOM through the window stored in it
    members: tuple[Member, ...]
    sites: tuple[SiteFacts, ...]
    scores: tuple[ScoreFacts, ...] = ()
    quality: QualityFacts | None = None
    ledger: str | None = None  # hash of the last line of the site's ledger
    made: str  # ISO 8601
    versions: dict[str, str]
    settings: dict[str, Any] = {}  # of the study, without folders

    @field_serializer("task")
    def _as_in_its_file(self, task: Task) -> dict[str, Any]:
        return task.settings
