"""What a method costs: bytes and seconds, round by round."""

from collections import defaultdict

import numpy as np

from polyclinic.report.figures.style import (
    WIDTH,
    Margins,
    canvas,
    count_rounds,
    quiet_title,
    style,
    to_data_uri,
)
from polyclinic.report.reading import Comparison, Run


def traffic_figure(comparison: Comparison) -> str | None:
    """Bytes so far and seconds of each round, of all sites together; None before a first round."""
    if not any(run.round_lines for run in comparison.runs):
        return None
    costs = [_per_round(method.runs[0]) for method in comparison.methods]
    most = max(sum(sent) for _, sent, _ in costs)
    unit, name = (1e9, "GB") if most >= 1e9 else (1e6, "MB")
    with canvas(1, 2, (WIDTH, 2.9), Margins(across=0.7)) as (figure, axes):
        traffic, work = axes[0]
        quiet_title(traffic, f"Traffic so far, all sites, both ways ({name})")
        quiet_title(work, "Work of all sites in a round (seconds)")
        for index, (numbers, sent, seconds) in enumerate(costs):
            traffic.plot(numbers, np.cumsum(sent) / unit, **style(index).line)
            work.plot(numbers, seconds, **style(index).line)
        for panel in (traffic, work):
            panel.set_ylim(0, 1.06 * panel.get_ylim()[1])
            count_rounds(panel)
        return to_data_uri(figure)


def _per_round(run: Run) -> tuple[list[int], list[int], list[float]]:
    """The rounds with the bytes and the seconds of each."""
    sent: dict[int, int] = defaultdict(int)
    seconds: dict[int, float] = defaultdict(float)
    for line in run.round_lines:
        sent[line.round] += line.up + line.down
        seconds[line.round] += line.seconds
    numbers = sorted(seconds)
    return numbers, [sent[each] for each in numbers], [seconds[each] for each in numbers]
