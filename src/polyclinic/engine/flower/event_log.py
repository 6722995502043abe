"""The events of a hosted study as lines of a file, so that another process can follow them."""

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from pydantic import TypeAdapter

from polyclinic.engine.loop import Event
from polyclinic.engine.run import Run
from polyclinic.runs import write_atomic
from polyclinic.runs.files import append_lines, complete_lines

KINDS = {kind.__name__: TypeAdapter(kind) for kind in get_args(Event)}


@dataclass
class EventLog:
    """The file of events; it begins with the process that writes it and ends with how it ended."""

    path: Path
    read: int = 0  # lines

    def begin(self, number: str) -> None:
        """Begin anew, as the process that hosts the study now."""
        write_atomic(self.path, json.dumps({"begun": os.getpid(), "as": number}) + "\n")

    def add(self, run: Run, event: Event) -> None:
        """Add an event of a run."""
        kind = type(event).__name__
        content = KINDS[kind].dump_python(event, mode="json")
        whose = {"run": run.folder.path.name, "of": run.choice.title}
        self._write({**whose, "kind": kind, "event": content})

    def tell(self, text: str) -> None:
        """Add something that the people at the coordinator should know."""
        self._write({"told": text})

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
        if run is not None:
            yield run, KINDS[line["kind"]].validate_python(line["event"])
