"""What the round loop needs of a run's sites, wherever they are, and what comes back from them."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from polyclinic.engine.site_runner import Scoring, SiteRunner
from polyclinic.federation.message import Message
from polyclinic.federation.method import Stage
from polyclinic.federation.server import Server
from polyclinic.runs import DIAGNOSED, RoundLine, RoundTable, Score, SiteInfo, Split

Row = tuple[str, str, str, float, int]  # case, region, metric, value, number of the patient


@dataclass(frozen=True)
class Reply:
    """A site's answer, None where it was left out, and what the record says of it."""

    message: Message | None
    line: RoundLine


@dataclass(frozen=True)
class Scored:
    """Scores of one site after a round, or of its final model."""

    round: int
    split: Split
    site: str
    rows: tuple[Score, ...]
    missed: str = ""  # why the site could not be scored
    notes: dict[str, float] = field(default_factory=dict)  # about the method's parts
    predicting: float | None = None  # seconds an image took, where it was measured

    @classmethod
    def of(
        cls, scoring: Scoring, site: str, rows: Iterable[Row], notes: Mapping[str, float] = {}
    ) -> "Scored":
        """The scores of a site from what was computed there."""
        scores = (
            Score(scoring.round, scoring.split, site, *row, model=scoring.model) for row in rows
        )
        return cls(scoring.round, scoring.split, site, tuple(scores), notes=dict(notes))


def diagnostics(scoring: Scoring, notes: Mapping[str, Mapping[str, float]]) -> RoundTable:
    """What sites noted about a method's parts as a table with a row for each of them."""
    columns = tuple(dict.fromkeys(name for each in notes.values() for name in each))
    values = tuple(tuple(each.get(name, math.nan) for name in columns) for each in notes.values())
    return RoundTable(
        round=scoring.round,
        name=DIAGNOSED,
        final=scoring.split == "test",
        rows=tuple(notes),
        columns=columns,
        values=values,
    )


class Sites(Protocol):
    """The sites of a run, wherever they are."""

    runner: SiteRunner  # with the network as every machine of the run starts with it
    threads: int  # of this process
    trained: tuple[SiteInfo, ...]  # take part in rounds
    scored: tuple[SiteInfo, ...]  # finalize and are scored
    quorum: float  # the share of them that must answer

    def ask(
        self, stage: Stage, messages: Mapping[str, Message], *, number: int, since: int
    ) -> Iterator[tuple[str, Reply]]:
        """Let the sites work on a stage; each starts from its state of round `since`."""
        ...

    def score(
        self, scoring: Scoring, messages: Mapping[str, Message] | None, *, since: int
    ) -> Iterator[Scored]:
        """Score every site's model; with messages each site finalizes first, on a copy."""
        ...

    def forget(self, needed: Sequence[int]) -> None:
        """Remove states that none of these rounds can ask for."""
        ...

    def keep(self, last: int, server: Server) -> Iterable[RoundLine]:
        """Keep each site's final model, its state of the last round, where it belongs.

        Where the study wants it, every model is scored at every site, too; lines say what it took.
        """
        ...
