"""Memory of a simulation with many sites: one network, whatever their number."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from bench import Ratio


def run() -> list[Ratio]:
    few, many = (peak(sites) for sites in (5, 50))
    each = (many - few) / 45
    note = f"{few:.0f} MB with 5 sites, {many:.0f} MB with 50: {each:.1f} MB a site"
    return [Ratio("memory of 50 sites against 5 (ours = 50)", many, few, None, note)]


def peak(sites: int) -> float:
    """Most megabytes of its own, file pages aside, that a process with so many sites has."""
    command = [sys.executable, "-m", "bench.memory", str(sites)]
    return float(subprocess.run(command, capture_output=True, check=True, text=True).stdout)


def simulate(sites: int) -> float:
    """The most memory seen after any event of a short study."""
    from polyclinic.catalog import BUILT_IN
    from polyclinic.config import DataSettings, load_study
    from polyclinic.data.load import load_federation
    from polyclinic.engine.local import local_sites
    from polyclinic.engine.run import runs_of
    from polyclinic.engine.study import carry_out

    with TemporaryDirectory() as folder:
        file = Path(folder, "memory.toml")
        file.write_text('task = { name = "octa", resolution = 64 }\nmethod = "fedbn"\n')
        changes = ["federation.rounds=2", "training.iterations=1", "evaluation.every=0"]
        study = load_study(file, [*changes, "evaluation.pictures=false"], BUILT_IN)
        data = load_federation(study.task.built, DataSettings(), (), splits_folder=None)
        many = [replace(data[n % len(data)], name=f"site-{n}") for n in range(sites)]
        (run,) = runs_of(study, Path(folder))
        with local_sites(run, many) as opened:
            return max(megabytes() for _ in carry_out(run, opened))


def megabytes() -> float:
    """This process's own memory now: what the system cannot read again from a file."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) * 1024 / 1e6


if __name__ == "__main__":
    print(simulate(int(sys.argv[1])))
