"""A whole federation round against the bare training steps it contains, and against workers."""

from collections.abc import Iterator
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

import torch

from bench import Ratio
from polyclinic.catalog import BUILT_IN
from polyclinic.config import AugmentationSettings, DataSettings, load_study
from polyclinic.data.batches import batches
from polyclinic.data.load import load_federation
from polyclinic.engine.local import LocalEngine
from polyclinic.engine.loop import RoundDone
from polyclinic.engine.process import prepare_process
from polyclinic.engine.run import runs_of
from polyclinic.engine.study import carry_out
from polyclinic.losses.supervised import segmentation_loss
from polyclinic.networks import NETWORKS

STUDY = """
task = { name = "octa", resolution = RESOLUTION }
method = "fedavg"
[evaluation]
every = 0
choose = "last"
[federation]
rounds = 100
"""
REPEATS = 5
SITES, ITERATIONS = 5, 10


def run() -> list[Ratio]:
    return [overhead(128), *(workers(resolution) for resolution in (64, 128))]


def overhead(resolution: int) -> Ratio:
    """Mixing, seeding, batches, augmentation, checkpoint and log included on our side."""
    with TemporaryDirectory() as folder:
        ours = rounds(Path(folder), resolution, workers=1, threads=2)
        next(ours)
        bare = bare_steps(resolution)
        next(bare)
        seconds = in_turns({"ours": ours, "bare": bare})
    extra = seconds["ours"] / seconds["bare"] - 1
    note = f"{SITES} sites × {ITERATIONS} iterations; overhead {extra:.1%}"
    return Ratio(
        f"federation round, {resolution}²", seconds["ours"], seconds["bare"], 1 / 1.03, note
    )


def workers(resolution: int) -> Ratio:
    with TemporaryDirectory() as folder:
        one = rounds(Path(folder) / "one", resolution, workers=1, threads=2)
        two = rounds(Path(folder) / "two", resolution, workers=2, threads=1)
        next(one), next(two)
        seconds = in_turns({"two": two, "one": one})
    name = f"2 workers × 1 thread against 1 × 2, {resolution}²"
    return Ratio(name, seconds["two"], seconds["one"], 0.95)


def rounds(folder: Path, resolution: int, *, workers: int, threads: int) -> Iterator[None]:
    """A round each time it is asked for the next."""
    folder.mkdir(exist_ok=True)
    file = folder / "bench.toml"
    file.write_text(STUDY.replace("RESOLUTION", str(resolution)))
    changes = [f"engine.workers={workers}", f"engine.threads={threads}"]
    study = load_study(file, changes, BUILT_IN)
    (run,) = runs_of(study, folder)
    with LocalEngine(None).open(run) as sites:
        for event in carry_out(run, sites):
            if isinstance(event, RoundDone) and event.round > 0:
                yield


def bare_steps(resolution: int) -> Iterator[None]:
    """As many plain training steps as a round has, on batches made beforehand."""
    prepare_process(2)
    net = NETWORKS["unet"](channels=1, classes=2).to(memory_format=torch.channels_last).train()
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01, fused=True)
    task = BUILT_IN.task["octa"].with_resolution(resolution)
    site, *_ = load_federation(task, DataSettings(), (), splits_folder=None)
    made = list(
        batches(
            site.train,
            batch=12,
            steps=ITERATIONS,
            rng=torch.Generator().manual_seed(0),
            augmentation=AugmentationSettings(),
            fill=task.fill,
        )
    )
    while True:
        for _ in range(SITES):
            for batch in made:
                segmentation_loss(net(batch.images), batch.labels, kind="ce+dice").backward()
                optimizer.step()
                optimizer.zero_grad()
        yield


def in_turns(contestants: dict[str, Iterator[None]]) -> dict[str, float]:
    """Median seconds of one turn of each, taken in turns."""
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(REPEATS):
        for name, contestant in contestants.items():
            start = perf_counter()
            next(contestant)
            seconds[name].append(perf_counter() - start)
    return {name: median(times) for name, times in seconds.items()}
