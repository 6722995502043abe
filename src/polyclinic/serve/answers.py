"""What a model answers to one image: facts, a mask, an overlay, or an array."""

import io
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from PIL import Image

from polyclinic.data.pictures import Picture
from polyclinic.predict.folder import extents, looked_at, most_shown
from polyclinic.predict.inputs import Scan
from polyclinic.predict.masks_out import Masks, write_masks
from polyclinic.predict.model import Model
from polyclinic.predict.overlay import overlay
from polyclinic.predict.pages import data_uri
from polyclinic.predict.records import finite
from polyclinic.serve.received import case_in, read_array

USUAL = "nothing about the image or its mask is unusual"
TYPES = {".png": "image/png", ".dcm": "application/dicom", ".gz": "application/gzip"}


@dataclass(frozen=True)
class Wish:
    """What is wanted of an image: one of `ANSWERS`; facts with pictures, or without flips."""

    form: str = "json"
    pictures: bool = False
    flips: bool = True


@dataclass(frozen=True)
class Answer:
    """Bytes, their type, and the name of a file that they may become."""

    content: bytes
    kind: str
    name: str


def answer(model: Model, content: bytes, wish: Wish) -> Answer:
    """The answer to what somebody sent; UnreadableError says what is wrong with it."""
    return ANSWERS[wish.form](model, content, wish)


def _facts(model: Model, content: bytes, wish: Wish) -> Answer:
    """Sizes of all classes and the note, in JSON; with pictures also the image and its overlay."""
    started = time.perf_counter()
    with case_in(content, model.facts) as (_, scan):
        masks, note, shown = looked_at(model, scan, flips=wish.flips)
    found = extents(masks, scan, model.task.classes, None)
    facts: dict[str, Any] = {
        "title": model.facts.title,
        "task": model.task.name,
        "size": masks.shape,
        "classes": {
            name: {"colour": model.facts.colours.get(name), **extent.model_dump()}
            for name, extent in found.items()
        },
        "doubt": finite(note.doubt),
        "reasons": note.reasons,
        "note": str(note) or USUAL,
        "shown": shown,
        "seconds": round(time.perf_counter() - started, 4),
    }
    if wish.pictures:
        facts["image"] = _embedded(_drawn(model, scan, np.zeros_like(masks), shown))
        facts["overlay"] = _embedded(_drawn(model, scan, masks, shown))
    return Answer(json.dumps(facts).encode(), "application/json", "facts.json")


def _mask(model: Model, content: bytes, _: Wish) -> Answer:
    """Class numbers in the geometry of the image: PNG, NIfTI or DICOM, as the image was."""
    with case_in(content, model.facts) as (given, scan):
        masks = _masks(model, scan)
        if scan.volume is None:
            return Answer(_png(masks[0]), TYPES[".png"], "mask.png")
        with TemporaryDirectory() as folder:
            file = write_masks(Path(folder), given, scan, masks, model.task)
            name = f"mask{''.join(file.suffixes)}"
            return Answer(file.read_bytes(), TYPES[file.suffix], name)


def _overlay(model: Model, content: bytes, _: Wish) -> Answer:
    """The image with its mask drawn on it; of a volume the slice that shows most."""
    with case_in(content, model.facts) as (__, scan):
        masks = _masks(model, scan)
        picture = _drawn(model, scan, masks, most_shown(masks))
        return Answer(_png(picture), TYPES[".png"], "overlay.png")


def _array(model: Model, content: bytes, _: Wish) -> Answer:
    """Class numbers (N×H×W) for an NPY file of images, as NPY."""
    images = read_array(content, model.task.channels)
    file = io.BytesIO()
    np.save(file, np.stack([model.classes(image) for image in images]), allow_pickle=False)
    return Answer(file.getvalue(), "application/x-npy", "masks.npy")


ANSWERS: dict[str, Callable[[Model, bytes, Wish], Answer]] = {
    "json": _facts,
    "mask": _mask,
    "overlay": _overlay,
    "array": _array,
}


def _masks(model: Model, scan: Scan) -> Masks:
    return np.stack([model.classes(image) for image in scan.slices()])


def _drawn(model: Model, scan: Scan, masks: Masks, shown: int) -> Picture:
    return overlay(scan.voxels[shown], masks[shown], model.facts.colours, model.task)


def _png(pixels: Picture | Masks) -> bytes:
    file = io.BytesIO()
    # The least compression: it is sent once, and more of it would take longer than the sending.
    Image.fromarray(pixels).save(file, format="PNG", compress_level=1)
    return file.getvalue()


def _embedded(picture: Picture) -> str:
    return data_uri("image/png", _png(picture))
