"""Cases as the page to look through shows them, one picture in memory at a time."""

import base64
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

from polyclinic.data.pictures import Picture
from polyclinic.predict.records import Record

SIDE = 360  # pixels of a picture on the page


class ShownCase(NamedTuple):
    """A case and its picture as a link that holds it."""

    record: Record
    picture: str


def shown_cases(folder: Path, records: Sequence[Record]) -> Iterator[ShownCase]:
    """The cases, the most doubtful first."""
    for record in sorted(records, key=lambda each: -(each.doubt or 0.0)):
        yield ShownCase(record, embedded(_opened(folder / record.overlay)))


def embedded(picture: Picture) -> str:
    """A picture as a link that holds it, its longer side at most 360 pixels."""
    small = Image.fromarray(picture)
    small.thumbnail((SIDE, SIDE))
    content = io.BytesIO()
    small.save(content, format="JPEG", quality=85)
    return f"data:image/jpeg;base64,{base64.b64encode(content.getvalue()).decode()}"


def _opened(path: Path) -> Picture:
    with Image.open(path) as picture:
        return np.asarray(picture.convert("RGB"))
