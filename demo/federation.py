"""`make federation`: a coordinator and four sites on this machine, as they would be deployed.

Everything is done with Polyclinic's own commands, each site in processes of its own, with TLS and
a key for each site. Only the pictures are drawn, and only the ports are changed.
"""

import shutil
import signal
import subprocess
import sys
import sysconfig
from contextlib import ExitStack, contextmanager
from pathlib import Path

from demo.drawn_sites import write_drawn_site
from polyclinic.catalog import BUILT_IN
from polyclinic.config import load_study
from polyclinic.engine.flower.processes import free_port

POLYCLINIC = str(Path(sysconfig.get_path("scripts")) / "polyclinic")
STUDY = Path("studies/federation.toml")
FOLDER = Path("runs/federation-demo")


def main() -> None:
    shutil.rmtree(FOLDER, ignore_errors=True)
    study = load_study(STUDY, [], BUILT_IN)
    deployment, port = FOLDER / "deployment", free_port()
    address = f"127.0.0.1:{port}"
    polyclinic("deploy", "init", STUDY, "--address", address, "--to", deployment)
    change(deployment / "coordinator" / "coordinator.toml", "port = 8000", f"port = {port}")
    names = [site.name for site in study.site]
    for name in names:
        folder = deployment / "sites" / name
        task = study.task.built
        write_drawn_site(folder / "data", task.name, name, resolution=task.resolution)
        change(folder / "node.toml", "threads = 0", "threads = 1")
        # Nobody sits here to read what the study means and to say: polyclinic approve node.toml
        change(folder / "node.toml", "studies = []", 'studies = ["*"]')
    with ExitStack() as stack:
        for name in names:
            stack.enter_context(site(deployment / "sites" / name, FOLDER / f"{name}.log"))
        print(f"sites {', '.join(names)} are starting; what they say is in {FOLDER}/*.log")
        coordinator = deployment / "coordinator"
        file = coordinator / "coordinator.toml"
        polyclinic("server", coordinator / "study.toml", "--coordinator", file, "--runs", FOLDER)
    for name in names:
        print(f"\nwhat left {name}:", flush=True)
        polyclinic("ledger", "verify", deployment / "sites" / name / "node.toml")
        models = deployment / "sites" / name / "state" / "runs"
        print(f"its own models stayed in {models}")
    use_own_model(deployment / "sites" / names[0], names[0])


def use_own_model(folder: Path, name: str) -> None:
    """A hospital makes a package of its own model and predicts its own images with it."""
    print(f"\n{name} uses its model:", flush=True)
    run = next((folder / "state" / "runs").glob("*/fedbn/seed-*"))
    package = folder / f"{name}.polyclinic"
    polyclinic("export", run, "--to", package)
    polyclinic("predict", package, folder / "data" / "images", "--to", folder / "predicted")


def polyclinic(*words: object) -> None:
    done = subprocess.run([POLYCLINIC, *map(str, words)])
    if done.returncode:
        sys.exit(done.returncode)


@contextmanager
def site(folder: Path, log: Path):
    """A hospital that takes part for as long as the block lasts."""
    command = [POLYCLINIC, "site", str(folder / "node.toml")]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        yield
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()


def change(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text, f"{file} has no {old}"
    file.write_text(text.replace(old, new))


if __name__ == "__main__":
    main()
