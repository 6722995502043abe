"""A hospital's side: a SuperNode and a worker for one site, kept running."""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from polyclinic.config.node_file import NodeFile
from polyclinic.engine.flower import commands
from polyclinic.engine.flower.guard import write_programs
from polyclinic.engine.flower.ledger import Ledger
from polyclinic.engine.flower.processes import SupervisedProcess, free_port, socket_path
from polyclinic.engine.flower.site_app import SOCKET
from polyclinic.runs.lock import locked

PAUSE = 0.5  # seconds between two looks at the programs


def run_site(
    site: NodeFile,
    file: Path,
    *,
    say: Callable[[str], None],
    going_on: Callable[[], bool] = lambda: True,
) -> None:
    """Keep a site connected until this process is ended; `file` is its node.toml."""
    if site.server.insecure:
        say("warning: insecure = true: nothing is encrypted and nobody proves who they are")
    Ledger(site.state / "ledger.jsonl").refuse_broken()
    with locked(site.state / "lock"):
        programs = [_worker(site, file, say), _supernode(site, say)]
        say(f"site {site.name} connects to {site.server.address}")
        try:
            while going_on():
                for program in programs:
                    program.look()
                time.sleep(PAUSE)
        finally:
            for program in reversed(programs):
                program.stop()


def _worker(site: NodeFile, file: Path, say: Callable[[str], None]) -> SupervisedProcess:
    command = (sys.executable, "-m", "polyclinic.engine.flower.worker", str(file.resolve()))
    return SupervisedProcess(f"the worker of {site.name}", command, os.environ, say)


def _supernode(site: NodeFile, say: Callable[[str], None]) -> SupervisedProcess:
    home = site.state / "flower"
    home.mkdir(parents=True, exist_ok=True)
    environment = commands.environment(home)
    programs = write_programs(site.state / "programs")
    environment["PATH"] = os.pathsep.join((str(programs), environment["PATH"]))
    environment[SOCKET] = str(socket_path(site.state))
    command = commands.supernode(site.name, site.server, free_port())
    log = site.state / "supernode.log"
    return SupervisedProcess(f"the SuperNode of {site.name}", command, environment, say, log)
