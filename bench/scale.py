"""A simulation of very many sites: do time, memory, disk and report grow in proportion to them?"""

import gc
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time

from bench import Ratio
from bench.memory import megabytes

SIZES = (100, 300, 1000)
STUDY = """
task = { name = "octa", resolution = 32 }
method = "fedbn"
data = { size = 0.1 }
network = { name = "unet", width = 2 }
training = { batch = 2, iterations = 1 }
federation = { rounds = 2 }
evaluation = { every = 1, metrics = ["dice"], pictures = false }
engine = { threads = 1 }
"""


def run() -> list[Ratio]:
    few, some, many = (measured(sites) for sites in SIZES)
    return [_growth(what, few, some, many) for what in few if what not in ("sites", "networks")]


def measured(sites: int) -> dict[str, float]:
    """What a study of so many sites takes, in a process of its own."""
    command = [sys.executable, "-m", "bench.scale", str(sites)]
    out = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    found: dict[str, float] = json.loads(out)
    assert found["networks"] == 1, f"{found['networks']} networks in memory"
    return found


def simulate(sites: int) -> dict[str, float]:
    """A short study with copies of a few drawn sites, then its report."""
    from polyclinic.catalog import BUILT_IN
    from polyclinic.config import load_study
    from polyclinic.data.load import load_federation
    from polyclinic.engine.local import local_sites
    from polyclinic.engine.loop import RoundDone
    from polyclinic.engine.run import runs_of
    from polyclinic.engine.study import carry_out
    from polyclinic.networks.contract import Segmenter
    from polyclinic.report import write_report

    with TemporaryDirectory() as folder:
        file = Path(folder, "scale.toml")
        file.write_text(STUDY)
        study = load_study(file, [], BUILT_IN)
        data = load_federation(study.task.built, study.data, (), splits_folder=None)
        many = [replace(data[n % len(data)], name=f"site-{n}") for n in range(sites)]
        (run,) = runs_of(study, Path(folder))
        memory, networks, disk, started = 0.0, 0, 0.0, process_time()
        with local_sites(run, many) as opened:
            for event in carry_out(run, opened):
                memory = max(memory, megabytes())
                if isinstance(event, RoundDone):
                    networks = max(networks, _networks(Segmenter))
                    disk = max(disk, _disk(run.folder.path))
        seconds, started = process_time() - started, process_time()
        page = write_report([run.folder.path], Path(folder, "report"))
        return {
            "sites": sites,
            "networks": networks,
            "CPU s": seconds,
            "memory MB": memory,
            "disk MB": disk,
            "report CPU s": process_time() - started,
            "report memory MB": megabytes(),
            "report MB": page.stat().st_size / 1e6,
        }


def _growth(
    what: str, few: dict[str, float], some: dict[str, float], many: dict[str, float]
) -> Ratio:
    """The slope from the second size to the third beside that from the first to the second."""
    first, then = (
        (b[what] - a[what]) / (b["sites"] - a["sites"]) for a, b in ((few, some), (some, many))
    )
    values = ", ".join(f"{each[what]:.1f}" for each in (few, some, many))
    note = f"{values} with {', '.join(map(str, SIZES))} sites: {1000 * then:.3g} for 1,000 more"
    return Ratio(f"slope of {what}", then, first, 0.8, note)


def _networks(kind: type) -> int:
    return sum(issubclass(type(each), kind) for each in gc.get_objects())  # asks no object itself


def _disk(folder: Path) -> float:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 1e6


if __name__ == "__main__":
    print(json.dumps(simulate(int(sys.argv[1]))))
