"""What there is to predict: pictures and volumes, found in folders, opened one after another."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from polyclinic.data.errors import UnreadableError
from polyclinic.data.formats.instances import Instance, is_dicom
from polyclinic.data.formats.nifti import SUFFIXES as NIFTI
from polyclinic.data.formats.nifti import is_nifti, stem
from polyclinic.data.formats.reading import Stack, files_below, stacks_of
from polyclinic.data.formats.volume import Axis, Volume
from polyclinic.data.readers import SUFFIXES, as_pixels, read_image, with_channels

Array = NDArray[Any]


@dataclass(frozen=True)
class Scan:
    """One case to predict: a picture, or a volume that is many of them."""

    voxels: Array  # slices × channels × rows × columns, uint8 or float32
    volume: Volume | None = None  # None for a picture
    instances: tuple[Instance, ...] = ()  # of DICOM

    def slices(self) -> Iterator[Array]:
        """Its slices as images (C×H×W)."""
        return iter(self.voxels)

    def in_own_order(self, masks: Array) -> Array:
        """Masks of all slices in the order that the file has: H×W for a picture."""
        if self.volume is None:
            return masks[0]
        stored = self.volume.restored(masks)
        return stored[0] if self.instances and len(stored) == 1 else stored

    @property
    def spacing(self) -> tuple[float, float] | None:
        """Millimetres between rows and between columns, where they are known."""
        return self.volume.spacing if self.volume else None

    @property
    def thickness(self) -> float | None:
        """Millimetres between slices, where there are several and they are known."""
        if self.volume is None or self.volume.affine is None or len(self.voxels) < 2:
            return None
        across = self.volume.turn.order[0]
        return float(np.linalg.norm(self.volume.affine[:3, across]))


@dataclass(frozen=True)
class Input:
    """A case to predict, not read yet: its name among all, and its files."""

    name: str
    files: tuple[Path, ...]
    stack: Stack | None = None

    def read(self, channels: int, axis: Axis | None = None, *, window: bool = False) -> Scan:
        """The case; UnreadableError where it cannot be used."""
        if self.stack is None:
            return Scan(read_image(self.files[0], channels)[None])
        volume = self.stack.read(axis, stored_window=window)
        voxels = [with_channels(each.transpose(1, 2, 0), channels) for each in volume.voxels]
        stacked = np.stack([each.transpose(2, 0, 1) for each in voxels])
        return Scan(np.ascontiguousarray(stacked), volume, self.stack.instances)


def inputs_in(paths: Sequence[Path]) -> tuple[list[Input], list[tuple[Path, str]]]:
    """All cases of files and folders, each with a name of its own, and what is none of them."""
    found: list[Input] = []
    left: list[tuple[Path, str]] = []
    for path in paths:
        if not path.exists():
            left.append((path, "there is no such file or folder"))
            continue
        files = files_below(path) if path.is_dir() else [path]
        root = path if path.is_dir() else path.parent
        pictures = [file for file in files if file.suffix.lower() in SUFFIXES]
        found += [Input(_stem(file, root), (file,)) for file in pictures]
        for file in files:
            if is_nifti(file):
                found.append(Input(_stem(file, root), (file,), Stack((file,))))
        more, without = _dicom(files, root)
        found += more
        left += without
        known = {*pictures, *(f for each in found for f in each.files), *(f for f, _ in left)}
        unknown = f"is of no known type; known are {', '.join((*SUFFIXES, *NIFTI))} and DICOM"
        left += [(f, unknown) for f in files if f not in known]
    return _distinct(sorted(found, key=lambda each: each.name)), left


def opened(
    image: str | PathLike[str] | Image.Image | Array,
    channels: int,
    axis: Axis | None = None,
    *,
    window: bool = False,
) -> Scan:
    """A path, a PIL image or an array (H×W, H×W×C or C×H×W) as a case."""
    if isinstance(image, str | PathLike):
        found, left = inputs_in([Path(image)])
        if len(found) != 1:
            told = "; ".join(f"{file} {text}" for file, text in left)
            raise UnreadableError(told or f"{image} holds {len(found)} cases; give one of them")
        return found[0].read(channels, axis, window=window)
    array = as_pixels(image) if isinstance(image, Image.Image) else np.asarray(image)
    if array.dtype not in (np.uint8, np.bool_):
        array = array.astype(np.float32)
    return Scan(_channels_first(array, channels)[None])


def _channels_first(array: Array, channels: int) -> Array:
    if array.ndim == 3 and array.shape[0] == channels and array.shape[2] > 4:
        return np.ascontiguousarray(array)
    last = array[:, :, None] if array.ndim == 2 else array
    if last.ndim != 3 or last.shape[2] > 16:
        raise UnreadableError(f"an image is H×W, H×W×C or {channels}×H×W, not {array.shape}")
    opaque = last[:, :, : {2: 1, 4: 3}.get(last.shape[2], last.shape[2])]
    return np.ascontiguousarray(with_channels(opaque, channels).transpose(2, 0, 1))


def _dicom(files: Sequence[Path], root: Path) -> tuple[list[Input], list[tuple[Path, str]]]:
    """The DICOM images among files: series are volumes, and named after their first file."""
    candidates = [file for file in files if is_dicom(file)]
    if not candidates:
        return [], []
    stacks, left = stacks_of(candidates)
    return [Input(_stem(stack.files[0], root), stack.files, stack) for stack in stacks], left


def _stem(file: Path, root: Path) -> str:
    """The path below the folder without its ending."""
    name = stem(file) if is_nifti(file) else file.stem
    return (file.relative_to(root).parent / (name or file.name)).as_posix()


def _distinct(inputs: Sequence[Input]) -> list[Input]:
    """The cases with their file's ending where names would be the same, then with numbers."""
    counts = Counter(each.name for each in inputs)
    taken: set[str] = set()
    named = []
    for each in inputs:
        name = each.name
        if counts[name] > 1:
            name = f"{name}-{each.files[0].name.partition('.')[2] or 'file'}"
        while name in taken:
            name += "+"
        taken.add(name)
        named.append(replace(each, name=name))
    return named
