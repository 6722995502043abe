"""Files that a reader never sees half of, and texts and errors that are fit to be shown."""

import csv
import errno
import io
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

LONGEST = 2000  # characters of a text from elsewhere
BLOCK = 65536  # bytes of a file that are searched together


class RunError(ValueError):
    """An error in a run folder: what, where, and what would help."""


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path to write to; when the block ends well it takes the place of `path` in one step."""
    unfinished = path.with_name(path.name + ".part")
    with clear_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield unfinished
            _to_disk(unfinished)
            unfinished.replace(path)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise


def write_atomic(path: Path, content: str | bytes) -> None:
    """Write a whole file: whoever reads it sees the old content or the new, never a part."""
    with replacing(path) as unfinished:
        unfinished.write_bytes(content.encode() if isinstance(content, str) else content)


def append_lines(path: Path, lines: str, *, header: str = "") -> None:
    """Add lines, each with its newline, on disk when this returns; a new file gets the header.

    What a killed process left of an unfinished last line is cut off first.
    """
    with clear_errors(path), path.open("ab+") as file:
        end = _end_of_lines(file)
        file.truncate(end)
        file.write((lines if end else header + lines).encode())
        file.flush()
        os.fsync(file.fileno())


def complete_lines(path: Path) -> list[str]:
    """The lines of a text file; a last one without its newline was torn by a kill and left out.

    Bytes that are no text become U+FFFD, so that only their own line is broken.
    """
    with clear_errors(path, "read"):
        content = path.read_bytes() if path.exists() else b""
    whole, _, _ = content.rpartition(b"\n")
    # Not splitlines: a name may hold characters that Unicode counts as line ends.
    return whole.decode(errors="replace").split("\n") if whole else []


def csv_text(rows: Iterable[Iterable[object]]) -> str:
    """Rows as the text of a CSV file."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


@contextmanager
def clear_errors(path: Path, doing: str = "write") -> Iterator[None]:
    """Turn the system's errors into a RunError that names the file and the way out."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise RunError(f"cannot {doing} {path}: {reason}{_ADVICE.get(error.errno, '')}") from error


_FULL = "; free some space, then continue with --resume: all finished rounds are kept"
_FORBIDDEN = "; choose a folder that you may write to, or change its permissions"
_ADVICE: dict[int | None, str] = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EACCES: _FORBIDDEN,
    errno.EPERM: _FORBIDDEN,
    errno.EROFS: _FORBIDDEN,
    errno.ENOTDIR: "; a part of this path is a file, not a folder",
}


def _to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _end_of_lines(file: BinaryIO) -> int:
    """The position after the last newline, found from the end."""
    position = file.seek(0, os.SEEK_END)
    while position > 0:
        start = max(0, position - BLOCK)
        file.seek(start)
        newline = file.read(position - start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        position = start
    return 0


def plain(text: str) -> str:
    """The text without control characters, such as those that command a terminal."""
    kept = (c if c.isprintable() or c == "\n" else " " * c.isspace() for c in text[:LONGEST])
    return "".join(kept).strip()
