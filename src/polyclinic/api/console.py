"""Where texts go: a console that takes nothing in a text for markup."""

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.status import Status


def plain_console(**settings: Any) -> Console:
    """A console that takes nothing in a text for markup: names and texts come from sites, too."""
    return Console(**settings, markup=False, emoji=False, highlight=False, force_jupyter=False)


CONSOLE = plain_console()
if not CONSOLE.is_terminal:
    CONSOLE.width = 160  # a file or a pipe has no edge to wrap at


def reading(folder: Path) -> Status:
    """What a terminal shows for as long as the files of a folder are read."""
    return CONSOLE.status(f"reading {folder}")
