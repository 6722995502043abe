"""A limit of time for one of many items, so that one that hangs fails by its name."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SECONDS = 300  # of a machine however busy; an item takes a fraction of a second


class HungError(Exception):
    """An item did not come to an end; no code under test expects this."""


@contextmanager
def within(item: object, seconds: int = SECONDS) -> Iterator[None]:
    """Fail with the item's name if what is done with it takes longer."""

    def fail(number: int, frame: FrameType | None) -> None:
        raise HungError(f"{item} took more than {seconds} seconds")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
