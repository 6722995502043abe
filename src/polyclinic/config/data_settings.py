"""Settings of the data: where the cases of the sites come from, and what sites train on."""

import math
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, ValidationInfo, field_validator

from polyclinic.config.section import Count, FolderName, Positive, Section, Share, known_in
from polyclinic.config.task import AT_A_SITE, Fit, Normalisation, Range


def _three(split: Any) -> Any:
    if isinstance(split, list | tuple) and len(split) != 3:
        raise ValueError("must be three shares: train, val, test")
    return tuple(split) if isinstance(split, list) else split


NO_FOLDER = ("synthetic", "none")
"""Sources that are no folder."""

LabelKind = Annotated[str, known_in("kind", "mask")]
"""What sites train on: full masks or a kind of weak label."""

Federation = Literal["disagreeing", "agreeing"]
"""The forms of a synthetic federation."""


class DataSettings(Section):
    """Where the cases come from and how they are divided by patient."""

    needs: ClassVar = dict.fromkeys(("federation", "size"), ("source", "synthetic"))

    source: str = "synthetic"
    """`synthetic`, a folder of site folders, or `none`, the default if every site has a folder."""
    federation: Federation = "disagreeing"
    """Synthetic sites that outline each in its own way, or that agree and have few patients."""
    only: tuple[str, ...] = ()
    """The sites that take part; by default all of the source and every [[site]]."""
    leave_out: FolderName | None = None
    """A site that is unseen, and scored as such; `each`: runs with all sites, and without each."""
    seed: Count = 0
    """Seed of synthetic patients, of splits and of weak labels made from masks."""
    size: Positive = 1.0
    """Factor on the number of synthetic patients."""
    split: Annotated[tuple[Share, Share, Share], BeforeValidator(_three)] = (0.7, 0.1, 0.2)
    """Shares of train, val and test, for sites that come without a split of their own."""
    given: Literal["kept", "recut"] = "kept"
    """Splits that sites come with: kept as they are, or cut anew by `split` or `folds`."""
    cut: Literal["in_order"] | None = None
    """In the order of patients' names, so that neighbouring frames stay together; else drawn."""
    folds: Count = 0
    """Folds in place of `split`: each tests once, or validates once where test cases are given."""
    fold: Count | None = None
    """One fold alone, from 0; by default each fold makes runs of its own."""

    @property
    def folder(self) -> Path | None:
        """The folder that holds one folder per site; None for synthetic sites, or for none."""
        return None if self.source in NO_FOLDER else Path(self.source)

    @property
    def each_fold(self) -> tuple[int | None, ...]:
        """The folds that make runs of their own; a single None without folds."""
        return tuple(range(self.folds)) if self.folds and self.fold is None else (self.fold,)

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
    def _one_of_the_folds(cls, fold: int | None, info: ValidationInfo) -> int | None:
        folds = info.data.get("folds", math.inf)
        if fold is None:
            return None
        if folds == 0:
            raise ValueError("has no effect with folds = 0")
        if folds <= fold:
            raise ValueError(f"must be below folds, so one of 0 to {folds - 1}")
        return fold


class SiteSettings(Section):
    """What a study says of one site; the others of the source take part as they are."""

    name: FolderName
    """The site's name; without `folder`, the folder of that name in the source."""
    folder: Path | None = None
    """The site's own folder, where it is not in the source."""
    labels: LabelKind | None = None
    """What the site trains on; by default what its site.toml says, else full masks."""
    annotates: tuple[str, ...] = ()
    """The classes and regions to take of its annotation, as if it had no others; by default all."""
    fit: Fit | None = None
    """How the site's images meet the square, where not as the task says."""
    normalisation: Normalisation | None = None
    """What the numbers of the site's images become, where not as the task says."""
    percentiles: Range | None = None
    """Those of the task, for this site."""
    window: Range | None = None
    """That of the task, for this site."""

    @property
    def preparation(self) -> dict[str, Any]:
        """What is otherwise for this site than the task says, and given here."""
        values = {name: getattr(self, name) for name in AT_A_SITE}
        return {name: value for name, value in values.items() if value is not None}
