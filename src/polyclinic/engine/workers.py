"""Several processes that work at the sites of one run, this one among them."""

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

from polyclinic.engine.capacity import START, helpers_wanted
from polyclinic.engine.other_process import Order, OtherProcess
from polyclinic.runs import RunError

Task = Sequence[Any]  # what a function of the worker is given


class SiteHelper(OtherProcess):
    """A process that opens the sites of a run and works at those that it is given."""

    def __init__(self, splits_folder: Path | None, jobs: int, order: Order) -> None:
        first = (splits_folder, jobs, order)
        super().__init__("polyclinic.engine.local:help_at_sites", first)
        self.ready = False

    def wait(self) -> None:
        """Wait until it has opened the sites."""
        self.received()
        self.ready = True

    def do(self, name: str, task: Task) -> Any:
        """What this function of its worker gives; a RunError tells why it failed."""
        self.send((name, task))
        done, result = self.received()
        if not done:
            raise RunError(result)
        return result


class Workers:
    """This process, and others that help it once that pays: after a while, or at once if told so.

    Which of them works at a site changes no bit.
    """

    def __init__(
        self,
        others: int = 0,
        start: Callable[[], SiteHelper] | None = None,
        *,
        at_once: bool = False,
    ) -> None:
        self.others, self.start, self.at_once = others, start, at_once
        self.helpers: list[SiteHelper] = []
        self.opened = time.monotonic()

    def close(self) -> None:
        """End the other processes."""
        for helper in self.helpers:
            helper.close()

    def map(self, name: str, here: Callable[..., Any], tasks: Sequence[Task]) -> Iterator[Any]:
        """What this function of a worker gives for each of the tasks, in their order."""
        helpers = self._ready() if len(tasks) > 1 else []
        return _shared(here, tasks, [partial(each.do, name) for each in helpers])

    def _ready(self) -> list[SiteHelper]:
        if self.start and self.others and (self.at_once or time.monotonic() - self.opened >= START):
            for _ in range(helpers_wanted(self.others, at_once=self.at_once)):
                self.helpers.append(self.start())
            self.others = 0
        for helper in list(self.helpers):
            if not helper.ready and (self.at_once or helper.connection.poll()):
                self._welcome(helper)
        return [helper for helper in self.helpers if helper.ready]

    def _welcome(self, helper: SiteHelper) -> None:
        """Wait for a process; one that came by itself and failed is done without."""
        try:
            helper.wait()
        except RunError:
            if self.at_once:
                raise
            self.helpers.remove(helper)


def _shared(
    here: Callable[..., Any], tasks: Sequence[Task], elsewhere: Sequence[Callable[[Task], Any]]
) -> Iterator[Any]:
    """Results in order, of tasks that are taken from one queue here and by the others."""
    futures: deque[Future[Any]] = deque(Future() for _ in tasks)
    left = deque(zip(futures, tasks, strict=True))

    def drain(work: Callable[[Task], Any]) -> None:
        while _do_next(left, work):
            pass

    for work in elsewhere:
        Thread(target=drain, args=(work,), daemon=True).start()
    try:
        while futures:
            future = futures.popleft()  # forgotten once given
            while not future.done() and _do_next(left, lambda task: here(*task)):
                pass
            yield future.result()
    finally:
        left.clear()


def _do_next(left: deque[tuple[Future[Any], Task]], work: Callable[[Task], Any]) -> bool:
    """Do the next task, if there is one."""
    try:
        future, task = left.popleft()
    except IndexError:
        return False
    try:
        future.set_result(work(task))
    except Exception as error:  # noqa: BLE001 (whoever asks for the result gets it)
        future.set_exception(error)
    return True
