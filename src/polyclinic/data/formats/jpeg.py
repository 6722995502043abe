"""JPEG in DICOM for which pydicom itself has no decoder: lossless, and of 12 bits."""

from functools import cache
from threading import Lock
from typing import Any

import numpy as np

from polyclinic.data.errors import UnreadableError
from polyclinic.data.formats.needed import needed

NAME = "imagecodecs"
EXTENDED, LOSSLESS, FIRST_ORDER = (f"1.2.840.10008.1.2.4.{number}" for number in (51, 57, 70))
DECODER_DEPENDENCIES = dict.fromkeys((EXTENDED, LOSSLESS, FIRST_ORDER), ("polyclinic[formats]",))
FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # markers that tell a picture's size
_ADDING = Lock()


def add_decoders() -> None:
    """Let pydicom know of the decoder; those that are installed already come before it."""
    with _ADDING:  # volumes are read side by side
        _add()


@cache
def _add() -> None:
    for syntax in DECODER_DEPENDENCIES:
        needed("pydicom.pixels").get_decoder(syntax).add_plugin(NAME, (__name__, "decoded_frame"))


def is_available(syntax: str) -> bool:
    """Whether files of this transfer syntax can be read; pydicom asks."""
    try:
        needed(NAME)
    except UnreadableError:
        return False
    return syntax in DECODER_DEPENDENCIES


def decoded_frame(stored: bytes, runner: Any) -> bytearray:
    """The pixels of one frame as pydicom's `runner` wants them, colours as they are stored."""
    bits, *size = _said(stored)
    wanted = [runner.rows, runner.columns, runner.samples_per_pixel]
    if size != wanted:  # before memory is taken for what it says
        one, other = ("×".join(map(str, each)) for each in (size, wanted))
        raise ValueError(f"the JPEG is {one} (rows, columns, samples), the DICOM file says {other}")
    colours = {"colorspace": "RGB", "outcolorspace": "RGB"} if size[2] == 3 else {}
    pixels = needed(NAME).jpeg_decode(stored, **colours)
    spare = pixels.itemsize * 8 - bits
    if runner.pixel_representation == 1 and spare:  # numbers below zero in fewer bits
        pixels = (pixels.view(f"i{pixels.itemsize}") << spare) >> spare
    runner.set_option("bits_allocated", pixels.itemsize * 8)
    return bytearray(np.ascontiguousarray(pixels).tobytes())


def _said(stored: bytes) -> tuple[int, int, int, int]:
    """The bits of a value, rows, columns and samples that the picture's own header names."""
    place = 2
    while place + 10 <= len(stored) and stored[place] == 0xFF:
        if stored[place + 1] in FRAMES:
            rows, columns = (int.from_bytes(stored[place + n : place + n + 2]) for n in (5, 7))
            return stored[place + 4], rows, columns, stored[place + 9]
        place += 2 + int.from_bytes(stored[place + 2 : place + 4])
    raise ValueError("the JPEG has no header that tells its size")
