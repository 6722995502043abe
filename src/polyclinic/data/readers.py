"""One image, mask or label out of a PNG, JPEG, TIFF, NPY or HDF5 file."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from polyclinic.data.errors import UnreadableError

Array = NDArray[Any]
LUMINANCE = np.array([0.299, 0.587, 0.114])  # ITU-R 601, as PIL's own conversion
LARGEST = 65535  # of the values in a mask
ORIENTATION = 0x0112  # the EXIF tag, 1 = upright
PLAIN_MODES = ("1", "L", "LA", "RGB", "RGBA", "I", "F", "I;16", "I;16L", "I;16B")


def read_image(path: Path, channels: int) -> Array:
    """C×H×W, uint8 where the file has 8 bits a channel, else float32; transparency is dropped."""
    pixels = opaque(_upright(_read(path, ("image",), colours=True)))
    if pixels.dtype not in (np.uint8, np.bool_):
        pixels = pixels.astype(np.float32)
        bad = pixels.size - np.count_nonzero(np.isfinite(pixels))
        if bad:
            raise UnreadableError(f"{bad} of its numbers are NaN or infinite")
    pixels = _with_channels(pixels, channels).transpose(2, 0, 1)
    return np.ascontiguousarray(pixels, dtype=np.uint8 if pixels.dtype == np.bool_ else None)


def read_stored(path: Path, keys: Sequence[str], *, colours: bool) -> Array:
    """H×W×C as the file has it, transparency too; of a palette its colours or its indices.

    Of an HDF5 file it is the first of `keys` it has.
    """
    return _upright(_read(path, keys, colours=colours))


def whole_numbers(pixels: Array) -> Array:
    """The first channel of H×W×C as uint8 or uint16; an UnreadableError where it has others."""
    values = pixels[:, :, 0]
    if values.dtype == np.uint8:
        return np.ascontiguousarray(values)
    whole = (values >= 0) & (values <= LARGEST) & (values == np.floor(values))
    if not whole.all():
        wanted = f"a mask has whole numbers, 0–{LARGEST}"
        raise UnreadableError(f"has the value {values[~whole][0]}; {wanted}")
    return np.ascontiguousarray(values, dtype=np.uint16)


def opaque(pixels: Array) -> Array:
    """H×W×1 or H×W×3, without the channel of transparency."""
    return pixels[:, :, : {2: 1, 4: 3}.get(pixels.shape[2], pixels.shape[2])]


def is_grey(pixels: Array) -> bool:
    """Whether all channels of H×W×C are equal."""
    return pixels.shape[2] == 1 or bool((pixels == pixels[:, :, :1]).all())


def datasets(path: Path) -> tuple[str, ...]:
    """The names of what an HDF5 file holds; nothing for any other or a broken file."""
    if _READERS.get(path.suffix.lower()) is not _read_hdf5:
        return ()
    try:
        with h5py.File(path) as file:
            return tuple(file)
    except OSError:
        return ()


def _read(path: Path, keys: Sequence[str], *, colours: bool) -> Array:
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise UnreadableError(f"is of no known type; known are {', '.join(SUFFIXES)}")
    try:
        pixels = reader(path, keys, colours)
    except UnreadableError:
        raise
    # What PIL, numpy and h5py raise between them for broken files.
    except (OSError, EOFError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise UnreadableError(f"cannot be read: {error}") from error
    if pixels.size == 0 or pixels.dtype.kind not in "buif":
        raise UnreadableError(f"holds no image but {pixels.dtype} of shape {pixels.shape}")
    return pixels


def _read_picture(path: Path, _: Sequence[str], colours: bool) -> Array:
    with Image.open(path) as picture:
        if getattr(picture, "n_frames", 1) > 1:
            raise UnreadableError("holds several frames; one file holds one image")
        if picture.getexif().get(ORIENTATION, 1) != 1:
            raise UnreadableError("is stored turned (EXIF orientation); save it upright")
        as_is = picture.mode in PLAIN_MODES or (picture.mode == "P" and not colours)
        clear = "transparency" in picture.info
        return np.array(picture if as_is else picture.convert("RGBA" if clear else "RGB"))


def _read_npy(path: Path, _: Sequence[str], __: bool) -> Array:
    array = np.load(path, allow_pickle=False)
    if not isinstance(array, np.ndarray):
        array.close()
        raise UnreadableError("is an archive of arrays; a .npy file holds one array")
    return array


def _read_hdf5(path: Path, keys: Sequence[str], _: bool) -> Array:
    with h5py.File(path) as file:
        for key in keys:
            if isinstance(file.get(key), h5py.Dataset):
                return np.asarray(file[key])
        raise UnreadableError(f"has no dataset {' or '.join(keys)}, only {', '.join(file)}")


_READERS: dict[str, Callable[[Path, Sequence[str], bool], Array]] = {
    ".png": _read_picture,
    ".jpg": _read_picture,
    ".jpeg": _read_picture,
    ".tif": _read_picture,
    ".tiff": _read_picture,
    ".npy": _read_npy,
    ".h5": _read_hdf5,
    ".hdf5": _read_hdf5,
}
SUFFIXES = tuple(_READERS)


def _upright(array: Array) -> Array:
    """H×W×C of H×W, H×W×C or C×H×W, with up to four channels."""
    if array.ndim == 2:
        return array[:, :, None]
    last = array.transpose(1, 2, 0) if array.ndim == 3 and array.shape[2] > 4 else array
    if last.ndim != 3 or last.shape[2] > 4:
        raise UnreadableError(f"has shape {array.shape}; one 2D image, grey or RGB, is needed")
    return last


def _with_channels(pixels: Array, channels: int) -> Array:
    if pixels.shape[2] == channels:
        return pixels
    if channels == 3:
        return np.repeat(pixels, 3, axis=2)
    if is_grey(pixels):
        return pixels[:, :, :1]
    grey = (pixels @ LUMINANCE)[:, :, None]
    return grey.round().astype(np.uint8) if pixels.dtype == np.uint8 else grey.astype(np.float32)
