"""What a site keeps beside its runs: the salt of its names, and its volumes ready to be mapped.

A study writes into no data folder. Volumes are unpacked and turned once, into `cache/`, which may
be deleted at any time; `salt` may not, because cases would be named anew.
"""

import json
import os
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache, lru_cache
from hashlib import blake2b
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from polyclinic.data.errors import DataError
from polyclinic.data.formats.volume import Array, Turn, Volume

FOLDER = "_volumes"  # beside the runs, where no study can have this name; a folder for each site
SALT = "salt"
FORMAT = "1"  # of what is kept; another one is read anew
Slice = tuple[Path, int]  # a kept volume, and the number of a slice


class Store:
    """One site's part of such a folder."""

    def __init__(self, site: str, data: Path, folder: Path | None) -> None:
        self._folder = Path(folder or _passing().name) / site
        own = data / SALT
        self._salt = own if own.is_file() else self._folder / SALT

    def hashed(self, identifier: str) -> str:
        """A name of 12 characters that nobody without the salt can tell the identifier from."""
        return blake2b(identifier.encode(), key=self.salt(), digest_size=6).hexdigest()

    def salt(self) -> bytes:
        """The site's own salt, drawn when it is first asked for."""
        if not self._salt.is_file():
            self._salt.parent.mkdir(parents=True, exist_ok=True)
            unfinished = self._salt.with_name(f".{SALT}.{os.getpid()}.{secrets.token_hex(4)}")
            unfinished.touch(mode=0o600)
            unfinished.write_text(f"{secrets.token_hex(32)}\n")
            with suppress(FileExistsError):  # another process was faster
                self._salt.hardlink_to(unfinished)
            unfinished.unlink()
        try:
            salt = bytes.fromhex(self._salt.read_text().strip())
        except (OSError, ValueError) as error:
            raise DataError([f"{self._salt} cannot be read: {error}"]) from error
        if len(salt) != 32:
            raise DataError([f"{self._salt} holds no salt of 32 bytes; put the old file back"])
        return salt

    def volume(self, files: Sequence[Path], how: str, read: Callable[[], Volume]) -> Volume:
        """What `read` gives, mapped from the second time on, until one of the files changes."""
        kept = self.array(files, how)
        about = kept.with_suffix(".json")
        if not about.is_file():
            volume = read()
            _write(kept, lambda unfinished: np.save(unfinished, volume.voxels))
            self.write(about, _about(volume, files))
        return _volume(kept, json.loads(about.read_text()), files)

    def array(self, files: Sequence[Path], how: str) -> Path:
        """The file that `volume` keeps the voxels in."""
        return self.path(files, how).with_suffix(".npy")

    def write(self, file: Path, text: str) -> None:
        """Keep a text at a place of `path`, whole or not at all."""
        _write(file, lambda unfinished: unfinished.write_text(text))

    def path(self, files: Sequence[Path], how: str) -> Path:
        """Where something is kept that was made of these files as they are now, in this way."""
        states = [(str(file), *_state(file)) for file in files]
        key = blake2b(repr((FORMAT, how, states)).encode(), key=self.salt(), digest_size=16)
        return self._folder / "cache" / key.hexdigest()


def read_slice(piece: Slice) -> Array:
    """Channels × rows × columns of a kept volume, mapped, not copied."""
    file, number = piece
    return _mapped(file)[number]


def kept_volume(file: Path) -> Volume:
    """All that is known of a kept volume but its files."""
    _, *about = json.loads(file.with_suffix(".json").read_text())
    return _volume(file, [[], *about], ())


@lru_cache(maxsize=16)  # one that is left out takes no more memory
def _mapped(file: Path) -> Array:
    return np.load(file, mmap_mode="r", allow_pickle=False)


@cache
def _passing() -> TemporaryDirectory[str]:
    """A folder for as long as the process lasts, where nobody gave one."""
    return TemporaryDirectory(prefix="polyclinic-volumes-")


def _state(file: Path) -> tuple[int, int]:
    status = file.stat()
    return status.st_size, status.st_mtime_ns


def _write(file: Path, write: Callable[[Path], object]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    # Two studies that begin at once may read the same volume.
    unfinished = file.with_name(f".{os.getpid()}.{secrets.token_hex(4)}{file.suffix}")
    try:
        write(unfinished)
        unfinished.replace(file)
    finally:
        unfinished.unlink(missing_ok=True)


def _about(volume: Volume, files: Sequence[Path]) -> str:
    """All but the voxels; files by their numbers, because their names may be patients'."""
    affine = None if volume.affine is None else volume.affine.tolist()
    order = [list(files).index(file) for file in volume.files]
    turn = [list(volume.turn.order), list(map(bool, volume.turn.flipped))]
    return json.dumps([order, turn, affine, volume.spacing, volume.warnings])


def _volume(kept: Path, about: list[Any], files: Sequence[Path]) -> Volume:
    order, (axes, flipped), affine, spacing, warnings = about
    return Volume(
        voxels=_mapped(kept),
        files=tuple(files[number] for number in order),
        turn=Turn((axes[0], axes[1], axes[2]), (flipped[0], flipped[1], flipped[2])),
        affine=None if affine is None else np.array(affine),
        spacing=None if spacing is None else (float(spacing[0]), float(spacing[1])),
        warnings=tuple(map(str, warnings)),
    )
