"""A hospital's side: a SuperNode and a worker for one site, kept running."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from polyclinic.config.site_file import SiteFile
from polyclinic.engine.flower import commands
from polyclinic.engine.flower.guard import write_programs
from polyclinic.engine.flower.processes import Kept, free_port, socket_path
from polyclinic.engine.flower.site_app import SOCKET
from polyclinic.runs.lock import locked

PAUSE = 0.5  # seconds between two looks at the programs


def run_site(
    site: SiteFile,
    file: Path,
    *,
    say: Callable[[str], None],
    going_on: Callable[[], bool] = lambda: True,
) -> None:
    """Keep a site connected until this process is ended; `file` is its SITE.toml."""
    if site.server.insecure:
        say("warning: insecure = true: nothing is encrypted and nobody proves who they are")
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


def _worker(site: SiteFile, file: Path, say: Callable[[str], None]) -> Kept:
    command = (sys.executable, "-m", "polyclinic.engine.flower.worker", str(file.resolve()))
    return Kept(f"the worker of {site.name}", command, os.environ, say)


def _supernode(site: SiteFile, say: Callable[[str], None]) -> Kept:
    home = site.state / "flower"
    home.mkdir(parents=True, exist_ok=True)
    environment = commands.environment(home)
    programs = write_programs(site.state / "programs")
    environment["PATH"] = os.pathsep.join((str(programs), environment["PATH"]))
    environment[SOCKET] = str(socket_path(site.state))
    command = commands.supernode(site.name, site.server, free_port())
    log = site.state / "supernode.log"
    return Kept(f"the SuperNode of {site.name}", command, environment, say, log)
