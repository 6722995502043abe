"""One image, mask or label out of a PNG, JPEG, TIFF, NPY or HDF5 file.

Whatever is wrong with a file, and whatever a decoder raises for it, is an UnreadableError.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageSequence

from polyclinic.data.errors import UnreadableError
from polyclinic.data.formats.limits import MAX_PIXELS, check_file, check_size
from polyclinic.data.formats.needed import needed
from polyclinic.data.formats.store import Slice, read_slice

Array = NDArray[Any]
LUMINANCE = np.array([0.299, 0.587, 0.114])  # ITU-R 601, as PIL's own conversion
LARGEST = 65535  # of the values in a mask
NUMBERS, COLOURS = 0, -1  # in place of a number of channels, where a mask is read
ORIENTATION = 0x0112  # the EXIF tag, 1 = upright
# Named, because Pillow would else try everything it knows, and start other programs for some.
PICTURES = ("PNG", "JPEG", "TIFF")
LOSSY = ("jpeg", "tiff_jpeg", "old_jpeg", "webp")  # compressions within a TIFF
PLAIN_MODES = ("1", "L", "LA", "RGB", "RGBA", "I", "F", "I;16", "I;16L", "I;16B")


def read_image(path: Path, channels: int, piece: Slice | None = None) -> Array:
    """C×H×W, uint8 where the file has 8 bits a channel, else float32; transparency is dropped.

    With a `piece`, the slice of a volume that was made of the file and is kept elsewhere.
    """
    # Of these a second or fourth channel is always transparency.
    known = None if path.suffix.lower() in (".png", ".jpg", ".jpeg") else channels
    pixels = _kept(piece) if piece else _channels_last(_read(path, ("image",), channels), known)
    if pixels.dtype not in (np.uint8, np.bool_):
        pixels = pixels.astype(np.float32, copy=False)
        bad = pixels.size - np.count_nonzero(np.isfinite(pixels))
        if bad:
            raise UnreadableError(f"{bad} of its numbers are NaN or infinite")
    pixels = with_channels(pixels, channels).transpose(2, 0, 1)
    return np.ascontiguousarray(pixels, dtype=np.uint8 if pixels.dtype == np.bool_ else None)


def as_pixels(picture: Image.Image) -> Array:
    """The numbers of an open picture; colours where it has a palette or is not grey or RGB."""
    return np.array(picture if picture.mode in PLAIN_MODES else picture.convert("RGB"))


def read_stored(
    path: Path, keys: Sequence[str], *, colours: bool = False, piece: Slice | None = None
) -> Array:
    """H×W×C as the file has it, transparency too; of a palette its colours or its indices.

    Of an HDF5 file it is the first of `keys` it has; with a `piece` as for images.
    """
    return _kept(piece) if piece else _upright(_read(path, keys, COLOURS if colours else NUMBERS))


def read_mask(path: Path, keys: Sequence[str] = ("mask",)) -> Array:
    """H×W whole numbers, as they are in the file."""
    return whole_numbers(read_stored(path, keys))


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


def _kept(piece: Slice) -> Array:
    return read_slice(piece).transpose(1, 2, 0)


def datasets(path: Path) -> tuple[str, ...]:
    """The names of what an HDF5 file holds; nothing for any other or a broken file."""
    if _READERS.get(path.suffix.lower()) is not _read_hdf5:
        return ()
    try:
        check_file(path)
        with _h5py().File(path) as file:
            return tuple(file)
    except Exception:  # noqa: BLE001 (what is wrong with it is said when it is read)
        return ()


def _read(path: Path, keys: Sequence[str], channels: int) -> Array:
    """What a file holds: an image for so many channels, or a mask of `NUMBERS` or `COLOURS`."""
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise UnreadableError(f"is of no known type; known are {', '.join(SUFFIXES)}")
    check_file(path)
    try:
        pixels = reader(path, keys, channels)
    except UnreadableError:
        raise
    except Exception as error:  # PIL, numpy and h5py raise anything for damaged files
        raise UnreadableError(f"cannot be read: {error}") from error
    if pixels.size == 0 or pixels.dtype.kind not in "buif":
        raise UnreadableError(f"holds no image but {pixels.dtype} of shape {pixels.shape}")
    return pixels


def _read_picture(path: Path, _: Sequence[str], channels: int) -> Array:
    with Image.open(path, formats=PICTURES) as picture:
        check_size(picture.size, MAX_PIXELS)
        frames = getattr(picture, "n_frames", 1)
        if frames > 1 and (frames != channels or picture.format != "TIFF"):
            raise UnreadableError("holds several frames; one file holds one image")
        if picture.getexif().get(ORIENTATION, 1) != 1:
            raise UnreadableError("is stored turned (EXIF orientation); save it upright")
        lossy = picture.format != "PNG" and picture.info.get("compression", "jpeg") in LOSSY
        if lossy and channels in (NUMBERS, COLOURS):
            raise UnreadableError("is JPEG, which changes class numbers; save masks as PNG")
        if frames > 1:
            return np.stack([np.array(frame) for frame in ImageSequence.Iterator(picture)], axis=2)
        if picture.mode == "P" and channels == NUMBERS:
            return np.array(picture)
        clear = "transparency" in picture.info and channels == COLOURS
        whole = clear and picture.mode not in PLAIN_MODES
        return as_pixels(picture.convert("RGBA") if whole else picture)


def _read_npy(path: Path, _: Sequence[str], __: int) -> Array:
    # Mapped first: a header may ask for more memory than there is, or than the file has.
    array = np.load(path, mmap_mode="r", allow_pickle=False)
    if not isinstance(array, np.ndarray):
        array.close()
        raise UnreadableError("is an archive of arrays; a .npy file holds one array")
    check_size(array.shape, 4 * MAX_PIXELS)
    return np.array(array)


def _read_hdf5(path: Path, keys: Sequence[str], _: int) -> Array:
    h5py = _h5py()
    with h5py.File(path) as file:
        key = next((key for key in keys if key in file), None)
        if key is None:
            raise UnreadableError(f"has no dataset {' or '.join(keys)}, only {', '.join(file)}")
        if not isinstance(file.get(key, getlink=True), h5py.HardLink):
            raise UnreadableError(f"has a link as {key}; put the numbers into the file itself")
        data = file[key]
        if not isinstance(data, h5py.Dataset):
            raise UnreadableError(f"has a group as {key}, not a dataset")
        if data.external or data.is_virtual:
            raise UnreadableError(f"has {key} in other files; put the numbers into the file itself")
        check_size(data.shape or (), 4 * MAX_PIXELS)
        return np.asarray(data)


def _h5py() -> Any:
    return needed("h5py")


_READERS: dict[str, Callable[[Path, Sequence[str], int], Array]] = {
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
    return array[:, :, None] if array.ndim == 2 else _turned(array, None)


def _channels_last(array: Array, channels: int | None = None) -> Array:
    """H×W×C of H×W, H×W×C or C×H×W: grey or RGB without transparency, or so many channels."""
    if array.ndim == 2:
        return array[:, :, None]
    array = _turned(array, channels)
    return array if array.shape[2] == channels else opaque(array)


def _turned(array: Array, channels: int | None) -> Array:
    shape = array.shape
    if array.ndim == 3 and shape[2] != channels and (shape[0] == channels or shape[2] > 4):
        array = array.transpose(1, 2, 0)
    if array.ndim != 3 or (array.shape[2] > 4 and array.shape[2] != channels):
        wanted = f"of {channels} channels" if channels else "grey or RGB"
        raise UnreadableError(f"has shape {shape}; one 2D image, {wanted}, is needed")
    return array


def with_channels(pixels: Array, channels: int) -> Array:
    """H×W×C pixels with as many channels as are wanted: grey repeated, colours as luminance."""
    found = pixels.shape[2]
    if found == channels:
        return pixels
    if channels == 3 and found == 1:
        return np.repeat(pixels, 3, axis=2)
    if channels == 1 and is_grey(pixels):
        return pixels[:, :, :1]
    if channels == 1 and found == 3:
        grey = (pixels @ LUMINANCE)[:, :, None]
        eight = pixels.dtype == np.uint8
        return grey.round().astype(np.uint8) if eight else grey.astype(np.float32)
    raise UnreadableError(f"has {found} channels, the task {channels}")
