"""The events of a hosted study as lines of a file, so that another process can follow them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from polyclinic.engine.loop import Event, Notice, RoundDone
from polyclinic.engine.run import Run
from polyclinic.engine.sites import Scored
from polyclinic.runs import RoundLine, Score, write_atomic
from polyclinic.runs.files import append_lines, complete_lines

KINDS = {"line": RoundLine, "scored": Scored, "done": RoundDone, "notice": Notice}


class EventLog:
    """The file of events; it begins with the process that writes it and ends with how it ended."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.read = 0

    def begin(self, number: str) -> None:
        """Begin anew, as the process that hosts the study now."""
        write_atomic(self.path, json.dumps({"begun": os.getpid(), "as": number}) + "\n")

    def add(self, run: Run, event: Event) -> None:
        """Add an event of a run."""
        kind = next(name for name, kind in KINDS.items() if isinstance(event, kind))
        content = event.model_dump(mode="json") if isinstance(event, RoundLine) else asdict(event)
        self._write({"run": run.folder.path.name, "of": run.choice.title, kind: content})

    def end(self, error: str = "") -> None:
        """Say that the study is finished, or why it is not."""
        self._write({"error": error} if error else {"finished": True})

    def news(self) -> list[dict[str, Any]]:
        """What was added since the last call."""
        lines = complete_lines(self.path)
        new = [json.loads(line) for line in lines[self.read :]]
        self.read = len(lines)
        return new

    def _write(self, line: dict[str, Any]) -> None:
        append_lines(self.path, json.dumps(line) + "\n")


def events_in(lines: Sequence[dict[str, Any]], runs: Sequence[Run]) -> Iterator[tuple[Run, Event]]:
    """The events among the lines, each with its run."""
    by_name = {(run.folder.path.name, run.choice.title): run for run in runs}
    for line in lines:
        run = by_name.get((str(line.get("run")), str(line.get("of"))))
        if run is None:
            continue
        if "line" in line:
            yield run, RoundLine.model_validate(line["line"])
        elif "scored" in line:
            rows = tuple(Score(*row) for row in line["scored"].pop("rows"))
            yield run, Scored(**line["scored"], rows=rows)
        elif "done" in line:
            yield run, RoundDone(**line["done"])
        else:
            yield run, Notice(**line["notice"])
