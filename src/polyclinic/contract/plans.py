"""The runs of a trial: the plain one, and those that differ from it."""

from dataclasses import dataclass, replace

from polyclinic.engine.loop import Event, RoundDone
from polyclinic.runs import RoundLine

Moment = tuple[type[Event], int]  # the first such event of that round


class Violation(Exception):
    """A method breaks the contract; the text says how, and often what would help."""


@dataclass(frozen=True)
class Plan:
    """How a run of the trial differs from the plain one."""

    words: str = "three sites"
    sites: int = 3
    rounds: int = 2
    every: int = 1
    participation: float = 1.0
    private_statistics: bool = False
    keep_optimizer: bool = False
    finishing: bool = True
    scattered: bool = False
    killed_at: tuple[Moment, ...] = ()
    repeated: bool = False


KILLS: tuple[Moment, ...] = ((RoundDone, 0), (RoundLine, 2), (RoundLine, 3))
PLAIN = Plan()
DISTURBED = replace(PLAIN, every=0, scattered=True, killed_at=KILLS)
PARTIAL = Plan(
    "five sites of which two take part in a round",
    sites=5,
    participation=0.4,
    private_statistics=True,
    keep_optimizer=True,
    finishing=False,
)
ALONE = Plan("one site with one case", sites=1, rounds=1, finishing=False)
