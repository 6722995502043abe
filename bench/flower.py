"""Across hospitals: what a message costs, and a round of real processes against other engines.

Not among the benchmarks that run by default: it starts up to dozens of processes and takes some
twenty minutes. `python -m bench flower` prints a table beside the ratios.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from demo.drawn_sites import write_drawn_site

from bench import Ratio
from bench.ray_side import simulated
from polyclinic.catalog import BUILT_IN
from polyclinic.config import Study, load_study
from polyclinic.config.node_file import load_node_file
from polyclinic.engine.flower.engine import requests_of
from polyclinic.engine.flower.processes import free_port, socket_path
from polyclinic.engine.flower.protocol import GreetingRequest, requesting
from polyclinic.engine.flower.site_app import ask_worker
from polyclinic.engine.flower.wire import Payload
from polyclinic.engine.run import runs_of
from polyclinic.runs import RunFolder, find_runs

POLYCLINIC = str(Path(sys.executable).with_name("polyclinic"))
SITES = (2, 8, 32)
SIMULATED = 8  # sites in Flower's own simulation
ROUNDS = 2
AT_ONCE = 8  # sites that work at the same time: more starve Flower itself on two cores
COLD = """
import sys
from pathlib import Path
from polyclinic.catalog import BUILT_IN
from polyclinic.config.node_file import load_node_file
from polyclinic.engine.flower.site_service import SiteService
from polyclinic.engine.flower.wire import header_of
payload = Path(sys.argv[2]).read_bytes()
service = SiteService(load_node_file(sys.argv[1]), BUILT_IN)
assert "response" in header_of(service.respond(payload))
"""
WARM = """
import sys
from pathlib import Path
from polyclinic.engine.flower.site_app import ask_worker
assert b"response" in ask_worker(Path(sys.argv[1]), Path(sys.argv[2]).read_bytes())
"""


def run() -> list[Ratio]:
    with TemporaryDirectory() as folder:
        ratios = [message(Path(folder) / "message")]
        for sites in SITES:
            measured = deployed(Path(folder) / f"sites-{sites}", sites)
            here = locally(Path(folder) / f"sites-{sites}")
            print(
                f"  {sites:2} sites: ready after {measured['start']:.0f} s, a round "
                f"{measured['round']:.1f} s ({measured['cpu']:.0f} CPU seconds), "
                f"{measured['bytes'] / 1e6:.2f} MB; local engine {here['round']:.2f} s, "
                f"{here['bytes'] / 1e6:.2f} MB",
                flush=True,
            )
            assert here["bytes"] == measured["bytes"], "both engines send the same"
            name = f"a round of {sites} sites, Flower against local"
            ratios.append(Ratio(name, measured["round"], here["round"], None))
        study = Path(folder) / f"sites-{SIMULATED}" / "study.toml"
        first, *others = simulated(Path(folder), study, SIMULATED, ROUNDS)
        here = of_run(study.parent / "local")
        note = f"{median(others):.2f} s a round, the first {first:.1f} s"
        name = f"a round of {SIMULATED} sites, local against Flower's Ray"
        ratios.append(Ratio(name, here["round"], median(others), None, note))
    return ratios


def message(folder: Path) -> Ratio:
    """One message: a process that does everything anew, against one that asks a worker."""
    study, files = prepared(folder, 1, free_port())
    site = load_node_file(files[0])
    payload = folder / "payload"
    (run,) = runs_of(study, folder)
    request = GreetingRequest(**next(iter(requests_of(study, run).values())))
    payload.write_bytes(Payload(requesting(request)).to_bytes())
    worker = [sys.executable, "-m", "polyclinic.engine.flower.worker", str(files[0])]
    with process(worker, folder / "worker.log"):
        ask_worker(socket_path(site.state), payload.read_bytes())
        cold = [[sys.executable, "-c", COLD, str(files[0]), str(payload)]] * 5
        warm = [[sys.executable, "-c", WARM, str(socket_path(site.state)), str(payload)]] * 5
        seconds = {"cold": [], "warm": []}
        for words in (each for pair in zip(cold, warm, strict=True) for each in pair):
            start = time.perf_counter()
            subprocess.run(words, check=True)
            seconds["cold" if COLD in words else "warm"].append(time.perf_counter() - start)
    ours, reference = median(seconds["warm"]), median(seconds["cold"])
    note = f"{reference:.2f} s without, {ours:.2f} s with a worker, beside Flower's own cost"
    return Ratio("a message to a site, worker kept against not", ours, reference, None, note)


def deployed(folder: Path, sites: int) -> dict[str, float]:
    """Seconds until the first round begins, of a round, CPU seconds and bytes of a round."""
    port = free_port()
    _, files = prepared(folder, sites, port)
    started = time.perf_counter()
    cpu = os.times()
    commands = [[POLYCLINIC, "site", str(file), "--insecure"] for file in files]
    with several(commands, folder):
        study, coordinator = folder / "study.toml", folder / "coordinator.toml"
        words = [POLYCLINIC, "server", study, "--coordinator", coordinator, "--insecure"]
        log = (folder / "server.log").open("wb")
        subprocess.run([*words, "--runs", folder / "runs"], check=True, stdout=log, stderr=log)
    after = os.times()
    spent = after.children_user + after.children_system - cpu.children_user - cpu.children_system
    measured = of_run(folder / "runs")
    measured["cpu"] = spent / (ROUNDS + 3)  # greeting, finalizing, scores cost as much as a round
    whole = time.perf_counter() - started
    measured["start"] = whole - measured["seconds"]
    return measured


def locally(folder: Path) -> dict[str, float]:
    """The same study in one process."""
    words = [POLYCLINIC, "run", folder / "study.toml", "--runs", folder / "local"]
    changes = ["--set", "engine.name=local"]
    text = (folder / "study.toml").read_text().partition("[engine]")[0]
    (folder / "study.toml").write_text(text)
    subprocess.run([*words, *changes], check=True, stdout=subprocess.DEVNULL)
    return of_run(folder / "local")


def of_run(root: Path) -> dict[str, float]:
    """Seconds of a round by the files' times, and bytes of a round, both ways."""
    run = RunFolder(find_runs([root / "bench"])[0])
    lines = [line for line in run.rounds() if line.round == 2]
    end = run.end()
    assert end is not None
    return {
        "round": end.seconds / (ROUNDS + 1),
        "seconds": end.seconds,
        "bytes": float(sum(line.down + line.up for line in lines)),
    }


def prepared(folder: Path, sites: int, port: int) -> tuple[Study, list[Path]]:
    """A study of small pictures for some sites without TLS, and a node.toml for each."""
    names = [f"site-{number:02d}" for number in range(sites)]
    files = []
    drawn = write_drawn_site(folder / "drawn", "octa", "jetty", resolution=32, size=0.6)
    (drawn / "site.toml").unlink()
    for name in names:
        shutil.copytree(drawn, folder / "data" / name)
        files.append(folder / f"{name}.toml")
        files[-1].write_text(
            f'name = "{name}"\ndata = "data/{name}"\nthreads = 1\nstate = "state/{name}"\n'
            f'[server]\naddress = "127.0.0.1:{port}"\ninsecure = true\n'
            '[allow]\ncases = 1\nstudies = ["*"]\n'
        )
    listed = "".join(f'[[site]]\nname = "{name}"\n' for name in names)
    (folder / "coordinator.toml").write_text(f"port = {port}\ninsecure = true\n")
    (folder / "study.toml").write_text(
        'name = "bench"\ntask = { name = "octa", resolution = 32 }\nmethod = "fedavg"\n'
        '[data]\nsource = "data"\n[network]\nname = "unet"\nwidth = 4\n'
        f"[training]\niterations = 2\nbatch = 4\n[federation]\nrounds = {ROUNDS}\n"
        f'[evaluation]\nevery = 0\nchoose = "last"\npictures = false\n{listed}'
        f'[engine]\nname = "flower"\nat_once = {AT_ONCE}\n'
    )
    return load_study(folder / "study.toml", [], BUILT_IN), files


@contextmanager
def process(words: list[str], log: Path) -> Iterator[None]:
    with log.open("wb") as output, subprocess.Popen(words, stdout=output, stderr=output) as running:
        try:
            yield
        finally:
            running.terminate()


@contextmanager
def several(commands: list[list[str]], folder: Path) -> Iterator[None]:
    logs = [(folder / f"site-{number}.log").open("wb") for number in range(len(commands))]
    running = [
        subprocess.Popen(words, stdout=log, stderr=log)
        for words, log in zip(commands, logs, strict=True)
    ]
    try:
        yield
    finally:
        for each in running:
            each.terminate()
        for each in running:
            each.wait()
