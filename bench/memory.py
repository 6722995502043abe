"""Memory of a simulation with many sites: one network, whatever their number."""

import resource
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from bench import Ratio


def run() -> list[Ratio]:
    few, many = (peak(sites) for sites in (5, 50))
    note = f"peak {few:.0f} MB with 5 sites, {many:.0f} MB with 50 (a network: 7.3 MB of weights)"
    return [Ratio("memory of 50 sites against 5 (ours = 50)", many, few, None, note)]


def peak(sites: int) -> float:
    """Peak resident megabytes of a process that simulates so many sites."""
    command = [sys.executable, "-m", "bench.memory", str(sites)]
    return float(subprocess.run(command, capture_output=True, check=True, text=True).stdout)


def simulate(sites: int) -> None:
    from polyclinic.config import DataSettings, load_study
    from polyclinic.data.load import load_federation
    from polyclinic.engine.study import TABLES, perform, runs_of, task_of

    with TemporaryDirectory() as folder:
        file = Path(folder, "memory.toml")
        file.write_text('task = { name = "octa", resolution = 64 }\nmethod = "fedbn"\n')
        changes = ["federation.rounds=2", "training.iterations=1", "evaluation.every=0"]
        study = load_study(file, [*changes, "evaluation.pictures=false"], TABLES)
        data = load_federation(task_of(study), DataSettings(), (), splits_folder=None)
        many = [replace(data[n % len(data)], name=f"site-{n}") for n in range(sites)]
        for _ in perform(runs_of(study, Path(folder))[0], many):
            pass


if __name__ == "__main__":
    simulate(int(sys.argv[1]))
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
