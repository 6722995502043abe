"""A study that runs in a second, written as a user would, and methods defined in a script."""

from dataclasses import dataclass
from pathlib import Path

import polyclinic as pc

SMALL = {
    "task": {"name": "octa", "resolution": 32},
    "network": {"name": "unet", "width": 2},
    "data": {"size": 0.1, "only": ["fjord", "grove"]},
    "training": {"iterations": 1, "batch": 4},
    "federation": {"rounds": 1},
    "evaluation": {"metrics": ["dice", "hd95"], "every": 1, "pictures": False},
    "engine": {"threads": 1},
}


@dataclass(frozen=True)
class Pulled(pc.Method):
    """FedAvg with a setting that does nothing."""

    mu: float = 0.5
    layers: tuple[int, ...] = (1, 2)


def small_run(folder: Path, **settings: object) -> pc.Results:
    """The results of a small study."""
    return pc.run(pc.Study(**{**SMALL, "method": ["fedavg"], **settings}), runs=folder / "runs")
