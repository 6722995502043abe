"""The app that the SuperLink starts at the coordinator: it hosts one study."""

from __future__ import annotations

import os
import time
from pathlib import Path
from threading import Thread

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from polyclinic.catalog import installed
from polyclinic.config import load_study
from polyclinic.engine.flower.event_log import EventLog
from polyclinic.engine.flower.hosting import events_file, host_study
from polyclinic.engine.flower.processes import alive

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Host the study that the run's settings name, telling all events to a file."""
    settings = context.run_config
    study = load_study(str(settings["study"]), [], installed())
    root = Path(str(settings["runs"]))
    told = EventLog(events_file(root, study))
    told.begin(str(settings["attempt"]))
    Thread(target=_end_with, args=(int(settings["coordinator"]),), daemon=True).start()
    try:
        host_study(
            study,
            root,
            grid,
            resume=bool(settings["resume"]),
            fresh=bool(settings["fresh"]),
            insecure=bool(settings["insecure"]),
            watch=told.tell,
        )
    except Exception as error:
        known = isinstance(error, ValueError)
        told.end(str(error) if known else f"{type(error).__name__}: {error}")
        raise
    told.end()


def _end_with(coordinator: int) -> None:  # pragma: no cover (ends the process)
    """End this process when the coordinator's command does: it would keep the run folder."""
    while alive(coordinator):
        time.sleep(2)
    os._exit(1)
