"""A hospital that runs a tampered program: the site's own code, but spoilt answers leave it.

`python -m tests.engine.flower.tampered site node.toml` takes the place of `polyclinic site`. A file
beside node.toml says in which rounds the answer is spoilt, and how; without it the site is honest.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from polyclinic.cli import main
from polyclinic.config.node_file import NodeFile
from polyclinic.engine.flower import node, worker
from polyclinic.engine.flower.processes import SupervisedProcess
from polyclinic.engine.flower.site_service import SiteService
from polyclinic.engine.flower.wire import Payload, header_of
from tests.engine.flower.spoilers import SPOILERS

ORDERS = "tampering.json"
PROGRAM = (sys.executable, "-m", "tests.engine.flower.tampered")


def order(folder: Path, spoilers: Mapping[int, str]) -> None:
    """Have a site spoil its answers of these rounds."""
    folder.mkdir(exist_ok=True)
    (folder / ORDERS).write_text(json.dumps({str(number): how for number, how in spoilers.items()}))


class TamperedService(SiteService):
    """A service that does all it is asked and spoils what it gives out."""

    def respond(self, data: bytes) -> bytes:
        request, back = header_of(data)["request"], super().respond(data)
        file = self.site.state.parent / ORDERS
        orders = json.loads(file.read_text()) if file.exists() else {}
        how = orders.get(str(request.get("number")))
        if request["kind"] != "stage" or how is None:
            return back
        return SPOILERS[how][0](Payload.from_bytes(back)).to_bytes()


def tampered_worker(site: NodeFile, file: Path, say: Callable[[str], None]) -> SupervisedProcess:
    return SupervisedProcess(
        f"the worker of {site.name}", (*PROGRAM, str(file.resolve())), os.environ, say
    )


if __name__ == "__main__":
    if sys.argv[1] == "site":
        node._worker = tampered_worker
        main()
    else:
        worker.SiteService = TamperedService
        worker.main()
