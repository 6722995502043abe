"""Another process that does runs of a study, one after the other: `Job` is its owner's side."""

from collections.abc import Iterator
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path

from polyclinic.engine.local import LocalEngine
from polyclinic.engine.loop import Event
from polyclinic.engine.other_process import (
    Order,
    OtherProcess,
    owner_of_this,
    reason,
    receive,
    send,
)
from polyclinic.engine.run import Run
from polyclinic.engine.study import do_run
from polyclinic.runs import RunError


class Job(OtherProcess):
    """A process that does runs on this machine, each with its share of the cores."""

    def __init__(self, splits_folder: Path | None, jobs: int) -> None:
        super().__init__("polyclinic.engine.job:work", (splits_folder, jobs))

    def do(self, run: Run, *, fresh: bool) -> Iterator[Event]:
        """One run, event by event; a RunError tells why it failed."""
        self.send(Order.of(run, fresh=fresh))
        while (told := self.received()) is not None:
            if isinstance(told, str):
                raise RunError(told)
            yield told


def work() -> None:  # pragma: no cover (in the new process)
    """What the new process does: runs as ordered, until its owner is gone."""
    owner = owner_of_this()
    splits_folder, jobs = receive(owner)
    engine = LocalEngine(splits_folder, jobs=jobs)
    with suppress(EOFError):
        while True:
            send(owner, _fulfil(receive(owner), engine, owner))


def _fulfil(order: Order, engine: LocalEngine, owner: Connection) -> str | None:
    # pragma: no cover (in the new process)
    try:
        for event in do_run(order.run(), engine, fresh=order.fresh):
            send(owner, event)
    except Exception as error:  # noqa: BLE001 (whatever it is, the next run may work)
        return reason(error)
    return None
