"""What a method costs in bytes and seconds, and how fast it learns."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from polyclinic.report.reading import Comparison, MethodRuns, Run
from polyclinic.runs import RoundLine


@dataclass(frozen=True)
class Cost:
    """Of one method at one site, or at all sites together: means over rounds and runs.

    Seconds are those of the middle round.
    """

    name: str
    down_per_round: float
    up_per_round: float
    total_bytes: float
    seconds_per_round: float
    images_per_second: float
    missed: int = 0  # visits that did not take place, in all runs
    epsilon: float | None = None  # the most that was given away in a run, where messages have noise


@dataclass(frozen=True)
class StageCost:
    """The bytes of all sites in one stage: means over its exchanges, in total over runs."""

    name: str
    exchanges: float  # in a run
    down: float
    up: float
    total_bytes: float


@dataclass(frozen=True)
class MethodCost:
    """The cost of a method as a whole and at each site, and what its messages carry."""

    title: str
    whole: Cost
    stages: tuple[StageCost, ...]
    sites: tuple[Cost, ...]
    parts: dict[str, float]  # bytes that a run's sites sent of each part of the network
    extras: tuple[str, ...]
    run_seconds: float | None


def method_costs(comparison: Comparison) -> list[MethodCost]:
    """The costs of all methods of which a round was written."""
    return [
        _method_cost(method, comparison.sites)
        for method in comparison.methods
        if any(run.rounds for run in method.runs)
    ]


def _method_cost(method: MethodRuns, sites: Sequence[str]) -> MethodCost:
    runs = [run for run in method.runs if run.rounds]
    seconds = [run.end.seconds for run in runs if run.end]
    lines = [_by_site(run, sites) for run in runs]
    return MethodCost(
        title=method.title,
        whole=_cost("all sites", runs, [list(travelled(run, sites)) for run in runs]),
        # In the order of a run; a run that has not come to a stage does not count there.
        stages=tuple(
            _stage_cost(name, runs)
            for name in dict.fromkeys(line.stage for run in runs for line in run.rounds)
        ),
        sites=tuple(_cost(site, runs, [each[site] for each in lines]) for site in sites),
        parts=_sent_by_part(runs),
        extras=_grouped({e: None for run in runs for line in run.rounds for e in line.extras}),
        run_seconds=float(np.mean(seconds)) if seconds else None,
    )


def travelled(run: Run, sites: Sequence[str]) -> Iterator[RoundLine]:
    """All lines of a run; work on pooled images counts, but nothing travels there."""
    for line in run.rounds:
        at_site = line.site in sites
        yield line if at_site else line.model_copy(update={"down": 0, "up": 0})


def _by_site(run: Run, sites: Sequence[str]) -> dict[str, list[RoundLine]]:
    found: dict[str, list[RoundLine]] = {site: [] for site in sites}
    for line in run.rounds:
        if line.site in found:
            found[line.site].append(line)
    return found


def _cost(name: str, runs: list[Run], lines: list[list[RoundLine]]) -> Cost:
    """What these lines of each run say."""
    per_run = [_run_cost(run, own) for run, own in zip(runs, lines, strict=True)]
    down, up, total, seconds, speed = (float(number) for number in np.mean(per_run, axis=0))
    every = list(chain(*lines))
    spent = [line.numbers["epsilon"] for line in every if "epsilon" in line.numbers]
    missed = sum(bool(line.missed) for line in every)
    return Cost(name, down, up, total, seconds, speed, missed, max(spent, default=None))


def _stage_cost(name: str, runs: list[Run]) -> StageCost:
    found = [[line for line in run.rounds if line.stage == name] for run in runs]
    reached = [lines for lines in found if lines]
    exchanges = sum(len({line.round for line in lines}) for lines in reached)
    down = sum(line.down for lines in reached for line in lines)
    up = sum(line.up for lines in reached for line in lines)
    count = len(reached)
    return StageCost(name, exchanges / count, down / exchanges, up / exchanges, (down + up) / count)


def _grouped(extras: Iterable[str]) -> tuple[str, ...]:
    """Names of arrays; more than two of one group (`control/…`) become one entry."""
    groups: dict[str, list[str]] = {}
    for extra in extras:
        groups.setdefault(extra.partition("/")[0], []).append(extra)
    return tuple(
        entry
        for group, names in groups.items()
        for entry in (names if len(names) <= 2 else [f"{group}/… ({len(names)} arrays)"])
    )


def _sent_by_part(runs: list[Run]) -> dict[str, float]:
    parts: dict[str, float] = {}
    for run in runs:
        for line in run.rounds:
            for part, size in line.parts.items():
                parts[part] = parts.get(part, 0.0) + size / len(runs)
    return parts


def _round_seconds(lines: list[RoundLine]) -> list[float]:
    """The work of each round; a machine that slept in one of them tells nothing of the others."""
    found: dict[int, float] = {}
    for line in lines:
        found[line.round] = found.get(line.round, 0.0) + line.seconds
    return list(found.values())


def _run_cost(run: Run, lines: list[RoundLine]) -> tuple[float, ...]:
    """Stages before the first round and after the last belong to the total, not to a round."""
    last = run.planned_rounds or math.inf
    within = [line for line in lines if 1 <= line.round <= last]
    rounds = max(1, run.count_of_rounds)
    seconds = sum(line.seconds for line in lines)
    return (
        sum(line.down for line in within) / rounds,
        sum(line.up for line in within) / rounds,
        float(sum(line.down + line.up for line in lines)),
        float(np.median(_round_seconds(within))) if within else 0.0,
        sum(line.images for line in lines) / seconds if seconds else 0.0,
    )
