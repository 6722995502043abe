"""The app that the SuperLink starts at the coordinator: it hosts one study."""

from collections.abc import Mapping
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from polyclinic.catalog import installed
from polyclinic.config import load_study
from polyclinic.engine.flower.engine import FlowerEngine, events_file
from polyclinic.engine.flower.event_log import EventLog
from polyclinic.engine.flower.signing import signing_with
from polyclinic.engine.flower.transport import Link
from polyclinic.engine.parents import end_with
from polyclinic.engine.study import run_study

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Host the study that the run's settings name."""
    host(Link(grid), context.run_config)


def host(link: Link, settings: Mapping[str, object]) -> None:
    """Host a study with the sites that the link reaches, and write all events to a file."""
    study = load_study(str(settings["study"]), [], installed())
    root = Path(str(settings["runs"]))
    log = EventLog(events_file(root, study))
    log.begin(str(settings["attempt"]))
    end_with(int(str(settings["coordinator"])))  # or this process would keep the run folder
    certificate, key = (str(settings.get(name, "")) for name in ("certificate", "key"))
    try:
        sign = signing_with(Path(certificate), Path(key)) if key else None
        run_study(
            study,
            root,
            FlowerEngine(
                study, link, insecure=bool(settings["insecure"]), tell=log.tell, sign=sign
            ),
            resume=bool(settings["resume"]),
            fresh=bool(settings["fresh"]),
            watch=log.add,
        )
    except Exception as error:
        known = isinstance(error, ValueError)
        log.end(str(error) if known else f"{type(error).__name__}: {error}")
        raise
    log.end()
