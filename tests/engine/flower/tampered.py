"""A hospital that runs a tampered program: the site's own code, but spoilt answers leave it.

`python -m tests.engine.flower.tampered site SITE.toml` takes the place of `polyclinic site`. A file
beside SITE.toml says in which rounds the answer is spoilt, and how; without it the site is honest.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from polyclinic.cli import main
from polyclinic.config.site_file import SiteFile
from polyclinic.engine.flower import hospital, worker
from polyclinic.engine.flower.desk import Desk
from polyclinic.engine.flower.parcel import Parcel
from polyclinic.engine.flower.processes import Kept
from tests.engine.flower.spoilers import SPOILERS

ORDERS = "tampering.json"
PROGRAM = (sys.executable, "-m", "tests.engine.flower.tampered")


def order(folder: Path, spoilers: Mapping[int, str]) -> None:
    """Have a site spoil its answers of these rounds."""
    folder.mkdir(exist_ok=True)
    (folder / ORDERS).write_text(json.dumps({str(number): how for number, how in spoilers.items()}))


class TamperedDesk(Desk):
    """A desk that does all it is asked and spoils what it gives out."""

    def answer(self, parcel: Parcel) -> Parcel:
        ask, back = parcel.about["ask"], super().answer(parcel)
        file = self.site.state.parent / ORDERS
        orders = json.loads(file.read_text()) if file.exists() else {}
        how = orders.get(str(ask.get("number")))
        if ask["kind"] != "work" or how is None:
            return back
        return SPOILERS[how][0](back)


def tampered_worker(site: SiteFile, file: Path, say: Callable[[str], None]) -> Kept:
    return Kept(f"the worker of {site.name}", (*PROGRAM, str(file.resolve())), os.environ, say)


if __name__ == "__main__":
    if sys.argv[1] == "site":
        hospital._worker = tampered_worker
        main()
    else:
        worker.Desk = TamperedDesk
        worker.main()
