"""NIfTI files (`.nii`, `.nii.gz`) as volumes."""

import gzip
import zlib
from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from polyclinic.data.errors import UnreadableError
from polyclinic.data.formats.limits import MAX_VOXELS, check_file, check_size
from polyclinic.data.formats.needed import needed
from polyclinic.data.formats.volume import Array, Axis, Volume, turned_volume

SUFFIXES = (".nii.gz", ".nii")
MILLIMETRES = {0: 1.0, 1: 1000.0, 2: 1.0, 3: 0.001}  # by the header's code for metres and microns
HEADERS = {348: "Nifti1Image", 540: "Nifti2Image"}  # by the header's own length
MAX_HEADER = 2**24  # bytes, extensions included


def is_nifti(path: Path) -> bool:
    """Whether the file's name says so."""
    return path.name.lower().endswith(SUFFIXES)


def stem(path: Path) -> str:
    """The file's name without `.nii` or `.nii.gz`."""
    return path.name[: -len(next(end for end in SUFFIXES if path.name.lower().endswith(end)))]


def read_nifti(path: Path, axis: Axis = "axial") -> Volume:
    """The volume of one file; several phases, cut-off files and oblique ones are refused."""
    image, warnings = _load(path)
    stored = _scaled(image)
    if stored.ndim == 3:
        stored = stored[..., None]
    return turned_volume(stored, _affine(image), axis, (path,), warnings, across=2)


def write_nifti(path: Path, stored: Array, affine: Array) -> None:
    """Write a stored array with its affine; a `Volume` gives both back for what belongs to it."""
    nibabel = needed("nibabel")
    image = nibabel.Nifti1Image(stored, affine)
    image.header.set_xyzt_units("mm")
    nibabel.save(image, path)


def _load(path: Path) -> tuple[Any, list[str]]:
    """The image with its data in memory, and what is odd about it."""
    nibabel = needed("nibabel")
    check_file(path)
    try:
        data = _bytes(path, nibabel)
        image = getattr(nibabel, HEADERS[_length(data)]).from_bytes(data)
    except UnreadableError:
        raise
    except Exception as error:  # a damaged header makes nibabel raise anything
        raise UnreadableError(f"cannot be read: {error}") from error
    codes = int(image.header["qform_code"]), int(image.header["sform_code"])
    told = [] if any(codes) else ["does not say how it lies; taken as stored"]
    if all(codes) and not np.allclose(image.get_qform(), image.get_sform(), atol=1e-2):
        told.append("says in two ways how it lies (qform, sform), which differ; sform counts")
    return image, told


def _bytes(path: Path, nibabel: Any) -> bytes:
    """As many bytes as the header asks for, so that no archive unpacks to more."""
    open_ = gzip.open if path.name.lower().endswith(".gz") else open
    try:
        with open_(path, "rb") as file:
            start = file.read(540)
            kind = HEADERS.get(_length(start))
            if kind is None:
                raise UnreadableError("is no NIfTI file, though its name says so")
            head = getattr(nibabel, kind).header_class
            header = head(start[: _length(start)], check=False)
            shape = tuple(int(side) for side in header.get_data_shape())
            _check_shape(shape)
            begin = int(header["vox_offset"])
            if not 0 <= begin <= MAX_HEADER:
                raise UnreadableError(f"says that its voxels begin at byte {begin}")
            whole = begin + prod(shape) * header.get_data_dtype().itemsize
            data = start + file.read(whole - len(start))
    except (OSError, EOFError, zlib.error) as error:
        raise UnreadableError(f"cannot be read: {error}") from error
    if len(data) < whole:
        raise UnreadableError(f"is cut off: {len(data):,} of {whole:,} bytes")
    return bytes(data)


def _length(data: bytes) -> int:
    lengths = (int.from_bytes(data[:4], "little"), int.from_bytes(data[:4], "big"))
    return next((length for length in lengths if length in HEADERS), 0)


def _check_shape(shape: Sequence[int]) -> None:
    if len(shape) > 3 and prod(shape[3:]) > 1:
        sides = "×".join(map(str, shape))
        raise UnreadableError(
            f"has {len(shape)} dimensions ({sides}): several phases or channels; "
            "save the one to use as a file of its own"
        )
    if len(shape) < 2 or min(shape) < 1:
        raise UnreadableError(f"holds no image but an array of shape {tuple(shape)}")
    check_size(shape, MAX_VOXELS)


def _scaled(image: Any) -> Array:
    """The numbers, three axes and channels where they are colours, uint8 or float32."""
    dtype = image.header.get_data_dtype()
    if dtype.names:  # colours
        raw = np.asarray(image.dataobj)
        stored = np.stack([raw[name] for name in dtype.names[:3]], axis=-1)
        return stored.reshape(*_three(stored.shape[:-1]), stored.shape[-1])
    if dtype.kind not in "uif":
        raise UnreadableError(f"holds {dtype}; numbers are needed")
    stored = np.asanyarray(image.dataobj)
    if stored.dtype != np.uint8:
        stored = stored.astype(np.float32)
        bad = stored.size - np.count_nonzero(np.isfinite(stored))
        if bad:
            raise UnreadableError(f"{bad} of its numbers are NaN or infinite")
    return stored.reshape(_three(stored.shape))


def _three(shape: Sequence[int]) -> tuple[int, int, int]:
    first, second, third = (*shape, 1)[:3]
    return first, second, third


def _affine(image: Any) -> Array:
    affine = np.array(image.affine, dtype=np.float64)
    unit = MILLIMETRES.get(int(image.header["xyzt_units"]) & 7, 1.0)
    affine[:3] *= unit
    return affine
