"""What a run's text files held when they were written, so that a later change is noticed.

Weights and states carry checksums of their own. `sums.json` beside the files has for each how many
bytes it had and their SHA-256; what a killed process added after that is no change.
"""

import hashlib
import json
from pathlib import Path

from polyclinic.runs.files import clear_errors, write_atomic

SUMS = "sums.json"

Sums = dict[str, tuple[int, str]]


def write_noted(path: Path, content: str | bytes) -> None:
    """Write a whole file, and note what it holds."""
    known = _sums(path.parent)
    if known.pop(path.name, None):  # a process that is killed in between leaves nothing amiss
        _write(path.parent, known)
    write_atomic(path, content)
    note(path.parent, path.name)


def note(folder: Path, *names: str) -> None:
    """Note what these files of a folder hold now, or that they are gone."""
    known = _sums(folder)
    for name in names:
        known.pop(name, None)
        if (folder / name).exists():
            known[name] = _sum((folder / name).read_bytes())
    _write(folder, known)


def changed(path: Path) -> bool:
    """Whether a file no longer begins with what was noted of it."""
    noted = _sums(path.parent).get(path.name)
    if noted is None:
        return False
    with clear_errors(path, "read"):
        content = path.read_bytes() if path.exists() else b""
    return _sum(content[: noted[0]]) != noted


def _sums(folder: Path) -> Sums:
    """What is noted, by the name of the file; nothing where that cannot be read."""
    try:
        read = json.loads((folder / SUMS).read_text("utf-8"))
        return {name: (int(size), str(digest)) for name, (size, digest) in read.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def _write(folder: Path, known: Sums) -> None:
    lines = [f" {json.dumps(name)}: {json.dumps(each)}" for name, each in sorted(known.items())]
    write_atomic(folder / SUMS, "{\n" + ",\n".join(lines) + "\n}\n")


def _sum(content: bytes) -> tuple[int, str]:
    return len(content), hashlib.sha256(content).hexdigest()
