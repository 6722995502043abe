"""How large a file may be: what says that it is larger is damaged or hostile, not an image."""

import stat
from collections.abc import Sequence
from math import prod
from pathlib import Path

from polyclinic.data.errors import UnreadableError

MAX_PIXELS = 2**26  # of one picture: 8,192 × 8,192
MAX_VOXELS = 2**29  # of one volume: 512 × 512 × 2,048
MAX_FILES = 500_000  # below one site's folder


def check_file(path: Path) -> None:
    """Refuse what is no regular file: reading a pipe or a device may never end."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:
        raise UnreadableError(f"cannot be read: {error}") from error
    if not stat.S_ISREG(mode):
        raise UnreadableError("is no regular file")


def check_size(shape: Sequence[int], most: int) -> None:
    """Refuse an array of this shape before it is read, where it has more numbers than `most`."""
    size = prod(int(side) for side in shape)
    if size > most:
        sides = "×".join(map(str, shape))
        raise UnreadableError(f"says that it has {sides} = {size:,} pixels; at most {most:,}")
