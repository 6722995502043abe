"""Every error in the data, said at once and with site and file."""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

FEW = 3  # files of which each gets its line, where the same is true of them
PAGE = "docs/data.md"


class DataError(ValueError):
    """All mistakes found in the data, a line each."""

    def __init__(self, mistakes: Sequence[str]) -> None:
        self.mistakes = tuple(mistakes)
        count = f"{len(self.mistakes)} mistakes" if len(self.mistakes) > 1 else "1 mistake"
        lines = (f"{count} in the data:", *self.mistakes)
        super().__init__("\n  ".join(lines) + f"\nHow folders should look: {PAGE}")

    # Between processes: the constructor takes the list, not the joined text.
    def __reduce__(self) -> tuple[type["DataError"], tuple[tuple[str, ...]]]:
        return DataError, (self.mistakes,)


class UnreadableError(ValueError):
    """Why a file cannot be used; who asked for the file adds its name."""


class Findings:
    """A growing list of lines about one site: `site alpha, masks/07.png: …`."""

    def __init__(self, site: str, folder: Path) -> None:
        self.site, self.folder = site, folder
        self._found: list[tuple[str, Path | None]] = []  # a text and its file
        self._whole: set[str] = set()  # lines that were complete when they came

    def add(self, text: str, file: Path | None = None) -> None:
        """Note `text` about `file`, or about the whole site."""
        self._found.append((text, file))

    def add_all(self, texts: Iterable[str], file: Path | None = None) -> None:
        """Note several texts about one file, or about the whole site."""
        self._found += [(text, file) for text in texts]

    def include(self, lines: Iterable[str]) -> None:
        """Note lines that tell their site themselves."""
        self._found += [(line, None) for line in lines]
        self._whole |= {*lines}

    @property
    def lines(self) -> list[str]:
        """All that was noted; what is true of many files is said once."""
        found = dict.fromkeys(self._found)  # slices of a volume have one file
        files = Counter(text for text, file in found if file)
        lines, folded = [], set()
        for text, file in found:
            if text in self._whole:
                lines.append(text)
            elif file is None or files[text] <= FEW:
                lines.append(self._line(text, file))
            elif text not in folded:
                folded.add(text)
                lines.append(self._line(text, file, f" and {files[text] - 1} more"))
        return lines

    def _line(self, text: str, file: Path | None, more: str = "") -> str:
        place = f", {file.relative_to(self.folder)}" if file else ""
        return f"site {self.site}{place}{more}: {text}"


def refuse(mistakes: Sequence[str]) -> None:
    """Raise a `DataError` where there is any mistake."""
    if mistakes:
        raise DataError(mistakes)


def listed(names: Sequence[str], most: int = 5) -> str:
    """The first few names in a row, with the number left out: `a, b, c and 4 more`."""
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")
