"""How many synthetic images a second one thread draws."""

from statistics import median
from time import process_time  # of one thread, whatever else the machine does

from bench import Ratio
from polyclinic.data.synthetic import FEDERATIONS, draw_site

RESOLUTIONS = (64, 128, 256, 384)
TARGET = 500.0  # images a second at 128²
REPEATS = 5


def run() -> list[Ratio]:
    """Images a second as a multiple of the target; only 128² has to reach it."""
    return [
        Ratio(
            f"synthetic {task} {resolution}², against {TARGET:.0f} images/s",
            1 / images_per_second(task, resolution),
            1 / TARGET,
            1.0 if resolution == 128 else None,
        )
        for task in FEDERATIONS
        for resolution in RESOLUTIONS
    ]


def images_per_second(task: str, resolution: int) -> float:
    """The median of several draws of a whole federation, compilation left out."""
    draw_federation(task, resolution, seed=0, size=0.01)
    size = 0.3 if resolution > 128 else 1.0
    return median(timed(task, resolution, seed, size) for seed in range(REPEATS))


def timed(task: str, resolution: int, seed: int, size: float) -> float:
    start = process_time()
    count = draw_federation(task, resolution, seed, size)
    return count / (process_time() - start)


def draw_federation(task: str, resolution: int, seed: int, size: float) -> int:
    return sum(
        len(draw_site(task, site.name, resolution=resolution, seed=seed, size=size).names)
        for site in FEDERATIONS[task]
    )
