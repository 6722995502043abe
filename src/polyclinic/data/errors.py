"""Every error in the data, said at once and with site and file."""

from collections.abc import Sequence
from pathlib import Path


class DataError(ValueError):
    """All mistakes found in the data, a line each."""

    def __init__(self, mistakes: Sequence[str]) -> None:
        self.mistakes = tuple(mistakes)
        count = f"{len(self.mistakes)} mistakes" if len(self.mistakes) > 1 else "1 mistake"
        super().__init__("\n  ".join((f"{count} in the data:", *self.mistakes)))

    # Between processes: the constructor takes the list, not the joined text.
    def __reduce__(self) -> tuple[type["DataError"], tuple[tuple[str, ...]]]:
        return DataError, (self.mistakes,)


class UnreadableError(ValueError):
    """Why a file cannot be used; who asked for the file adds its name."""


class Findings:
    """A growing list of lines about one site: `site alpha, masks/07.png: …`."""

    def __init__(self, site: str, folder: Path) -> None:
        self.site, self.folder = site, folder
        self.lines: list[str] = []

    def add(self, text: str, file: Path | None = None) -> None:
        """Note `text` about `file`, or about the whole site."""
        place = f", {file.relative_to(self.folder)}" if file else ""
        self.lines.append(f"site {self.site}{place}: {text}")


def refuse(mistakes: Sequence[str]) -> None:
    """Raise a `DataError` where there is any mistake."""
    if mistakes:
        raise DataError(mistakes)


def listed(names: Sequence[str], most: int = 5) -> str:
    """The first few names in a row, with the number left out: `a, b, c and 4 more`."""
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")
