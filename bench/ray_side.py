"""Flower's own simulation with Ray running plain FedAvg, on the network and data of bench.flower.

Ray is installed into a folder of its own for the measurement; Polyclinic never needs it.
"""

import json
import os
import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

from polyclinic.engine.flower import commands

RAY = "ray==2.55.1"  # what Flower's simulation extra asks for
PROJECT = """
[project]
name = "plain-fedavg"
version = "1.0.0"
license = "Apache-2.0"
dependencies = []
[tool.flwr.app]
publisher = "bench"
[tool.flwr.app.components]
serverapp = "plain.server:app"
clientapp = "plain.client:app"
[tool.flwr.app.config]
study = ""
times = ""
rounds = 1
sites = 1
"""
SERVER = """
import json, time
from flwr.app import Array, ArrayRecord
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from plain.client import place

app = ServerApp()


@app.main()
def main(grid, context):
    settings = context.run_config
    runner, _ = place(settings["study"])
    first = ArrayRecord({n: Array(t.numpy()) for n, t in runner.first_weights().items()})
    stamps = [time.time()]

    class Timed(FedAvg):
        def aggregate_train(self, server_round, replies):
            result = super().aggregate_train(server_round, replies)
            stamps.append(time.time())
            return result

    everybody = {"min_available_nodes": settings["sites"], "min_train_nodes": settings["sites"]}
    strategy = Timed(fraction_train=1.0, fraction_evaluate=0.0, **everybody)
    strategy.start(grid, first, num_rounds=settings["rounds"], timeout=600)
    open(settings["times"], "w").write(json.dumps(stamps))
"""
CLIENT = """
from functools import cache
import torch
from flwr.app import Array, ArrayRecord, Message as FlowerMessage, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()


@cache
def place(study):
    from pathlib import Path
    from polyclinic.config import load_study
    from polyclinic.data.load import load_federation
    from polyclinic.catalog import BUILT_IN
    from polyclinic.engine.run import assignment_of, runs_of, site_info
    from polyclinic.engine.site_runner import SiteRunner

    torch.set_num_threads(1)
    study = load_study(study, [], BUILT_IN)
    data = load_federation(study.task.built, study.data, study.site)
    (run,) = runs_of(study, Path("unused"))
    task = study.task.built
    infos = [site_info(site, task, index) for index, site in enumerate(data)]
    return SiteRunner(assignment_of(run, infos), torch.device("cpu")), data


@app.train()
def train(message, context):
    from polyclinic.federation.message import Message
    from polyclinic.federation.weights import Weights

    runner, data = place(context.run_config["study"])
    number = int(context.node_config["partition-id"])
    arrays = message.content.array_records["arrays"]
    tensors = {n: torch.from_numpy(a.numpy().copy()) for n, a in arrays.items()}
    message = Message(Weights.pack(tensors))
    info = runner.assignment.sites[number]
    stage = runner.assignment.stage("fit")
    visit = runner.visit(info, data[number], stage, message, None, 1)
    weights = visit.reply.weights
    reply = ArrayRecord({n: Array(t.contiguous().numpy()) for n, t in weights.items()})
    count = MetricRecord({"num-examples": info.images})
    return FlowerMessage(RecordDict({"arrays": reply, "metrics": count}), reply_to=message)
"""


def simulated(folder: Path, study: Path, sites: int, rounds: int) -> list[float]:
    """Seconds of each round; the first one includes Ray's start."""
    app, library, home = folder / "app", folder / "ray", folder / "flower"
    (app / "plain").mkdir(parents=True, exist_ok=True)
    (app / "pyproject.toml").write_text(PROJECT)
    for name, text in {"__init__": "", "server": SERVER, "client": CLIENT}.items():
        (app / "plain" / f"{name}.py").write_text(text)
    if not library.exists():
        pip = [sys.executable, "-m", "pip"]
        here = folder / "here.txt"  # what is installed stays as it is: Flower needs its versions
        here.write_bytes(subprocess.check_output([*pip, "list", "--format=freeze"]))
        words = [*pip, "install", "--quiet", "--target", str(library), "-c", str(here), RAY]
        subprocess.run(words, check=True)
    home.mkdir(exist_ok=True)
    (home / "config.toml").write_text('[superlink.here]\naddress = ":local-in-memory:"\n')
    times = folder / "times.json"
    settings = f'study="{study}" times="{times}" rounds={rounds} sites={sites}'
    resources = f"num-supernodes={sites} client-resources-num-cpus=1 init-args-num-cpus=2"
    environment = {
        **commands.environment(home),
        "PYTHONPATH": str(library),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # listens on the loopback interface only
    }
    command = ["flwr", "run", str(app), "here", "--stream", "--federation-config", resources]
    try:
        with (folder / "ray.log").open("wb") as log:
            subprocess.run(
                [*command, "--run-config", settings],
                env={**os.environ, **environment},
                stdout=log,
                stderr=log,
                check=True,
                timeout=900,
            )
    finally:
        end_all_of(home)
    stamps = json.loads(times.read_text())
    return [after - before for before, after in pairwise(stamps)]


def end_all_of(home: Path) -> None:
    """End the SuperLink that Flower leaves running behind a simulation, and its children."""
    mark = f"FLWR_HOME={home}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            ours = mark in (folder / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if ours:
            os.kill(int(folder.name), signal.SIGTERM)
