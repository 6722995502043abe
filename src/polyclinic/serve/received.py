"""Bytes that somebody sent, as images; what they are is seen from the bytes, not from a name."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from polyclinic.data.errors import UnreadableError
from polyclinic.data.formats.limits import MAX_PIXELS, check_size
from polyclinic.predict.facts import PackageFacts
from polyclinic.predict.inputs import Input, Scan, inputs_in

KNOWN = "PNG, JPEG, TIFF, NIfTI, DICOM and NPY"
# Where the bytes stand that give a format away, and the ending that its reader goes by.
BEGINNINGS = (
    (0, b"\x89PNG\r\n\x1a\n", ".png"),
    (0, b"\xff\xd8\xff", ".jpg"),
    (0, b"II*\0", ".tif"),
    (0, b"MM\0*", ".tif"),
    (0, b"II+\0", ".tif"),
    (0, b"MM\0+", ".tif"),
    (0, b"\x93NUMPY", ".npy"),
    (0, b"\x1f\x8b", ".nii.gz"),
    (128, b"DICM", ".dcm"),
    (344, b"n+1\0", ".nii"),
    (4, b"n+2\0", ".nii"),
)


def ending_of(content: bytes) -> str:
    """The usual ending of the content's format; UnreadableError where it is none we know."""
    if not content:
        raise UnreadableError("the image is empty: nothing was sent")
    for place, mark, ending in BEGINNINGS:
        if content[place : place + len(mark)] == mark:
            return ending
    raise UnreadableError(f"what was sent is no image of a known format; known are {KNOWN}")


@contextmanager
def case_in(content: bytes, facts: PackageFacts) -> Iterator[tuple[Input, Scan]]:
    """The case in the content; its file, which some formats need further, goes with the block."""
    with NamedTemporaryFile(suffix=ending_of(content)) as file:
        file.write(content)
        file.flush()
        try:
            found, left = inputs_in([Path(file.name)])
            if not found:
                raise UnreadableError("; ".join(text for _, text in left))
            (given,) = found
            scan = given.read(facts.task.channels, facts.axis, window=facts.stored_window)
        except UnreadableError as error:
            # Libraries name the file; whoever sent the image knows it by another name.
            text = str(error).replace(file.name, "the file")
            raise UnreadableError(f"the image {text}") from error
        yield given, scan


def read_array(content: bytes, channels: int) -> NDArray[Any]:
    """The images (N×C×H×W, uint8 or float32) of an NPY file: H×W, C×H×W or N×C×H×W."""
    if ending_of(content) != ".npy":
        raise UnreadableError("arrays are answered with arrays: send an NPY file")
    array = _unpacked(content)
    if array.dtype != np.uint8:
        array = array.astype(np.float32)
        if not np.isfinite(array).all():
            raise UnreadableError("the array has numbers that are NaN or infinite")
    shape = array.shape
    batch = array.reshape((1,) * (4 - len(shape)) + shape) if 2 <= len(shape) <= 4 else array
    if batch.ndim != 4 or batch.shape[1] != channels or batch.size == 0:
        raise UnreadableError(
            f"an array is H×W, {channels}×H×W or N×{channels}×H×W, not {'×'.join(map(str, shape))}"
        )
    return batch


def _unpacked(content: bytes) -> NDArray[Any]:
    """The array in an NPY file, without a copy; its header is believed no more than checked."""
    file = BytesIO(content)
    try:
        version = npy.read_magic(file)
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, by_columns, kind = read(file)
    except (ValueError, SyntaxError, TypeError) as error:
        raise UnreadableError(f"the array cannot be read: {error}") from error
    if kind.hasobject or kind.kind not in "buif":
        raise UnreadableError(f"the array holds {kind}, no numbers of pixels")
    check_size(shape, 4 * MAX_PIXELS)
    rest = len(content) - file.tell()
    if rest != math.prod(shape) * kind.itemsize:
        raise UnreadableError("the array is torn: its header and its length disagree")
    flat = np.frombuffer(content, kind, offset=file.tell())
    return flat.reshape(shape, order="F" if by_columns else "C")
