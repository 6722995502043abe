"""Volumes with their masks and labels, read once into a site's store."""

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from polyclinic.data.errors import Findings, UnreadableError
from polyclinic.data.formats.dicom import read_instances
from polyclinic.data.formats.instances import Instance, read_instance
from polyclinic.data.formats.nifti import is_nifti, read_nifti
from polyclinic.data.formats.segmentation import read_segmentation
from polyclinic.data.formats.store import Store
from polyclinic.data.formats.volume import Axis, Volume, axis_of, same_place, usual_axis
from polyclinic.data.readers import read_image
from polyclinic.data.site_files import SiteToml
from polyclinic.data.volume_finding import FoundVolume, is_picture


@dataclass(frozen=True)
class KeptVolume:
    """A volume as the store has it, with its masks and labels; pictures are read as ever."""

    found: FoundVolume
    image: Volume
    arrays: Mapping[Path, Path]  # file → the array that was made of it
    slices: int


def read_volumes(
    found: Sequence[FoundVolume],
    toml: SiteToml,
    store: Store,
    mistakes: Findings,
    warnings: Findings,
) -> list[KeptVolume]:
    """All volumes, read side by side where the store does not have them."""

    def read(volume: FoundVolume) -> KeptVolume | list[tuple[Path, str]]:
        return _read(volume, toml, store)

    with ThreadPoolExecutor(os.cpu_count()) as threads:
        results = list(threads.map(read, found))
    kept = [result for result in results if not isinstance(result, list)]
    for result in results:
        for file, text in result if isinstance(result, list) else ():
            mistakes.add(text, file)
    for volume in kept:
        for text in volume.image.warnings:
            warnings.add(text, volume.found.place)
    return kept


def _read(found: FoundVolume, toml: SiteToml, store: Store) -> KeptVolume | list[tuple[Path, str]]:
    """The volume, or what is wrong with its files."""
    axis = toml.axis or usual_axis(dicom=found.dicom)
    how = f"image {axis} {toml.stored_window}"
    try:
        image = store.volume(found.files, how, lambda: _image(found, axis, toml.stored_window))
    except UnreadableError as error:
        return [(found.place, str(error))]
    # A mask may be stored in another order than its image.
    axis = axis_of(image, axis)
    arrays = {found.files[0]: store.array(found.files, how)}
    errors = []
    for file in found.annotations.values():
        try:
            if is_picture(file):
                _check_single(image)
            else:
                files = (file,) if is_nifti(file) else (file, *found.files)
                how = f"mask {axis}"
                mask = store.volume(files, how, partial(_mask, file, found, image, axis))
                _check_mask(mask, image)
                arrays[file] = store.array(files, how)
        except UnreadableError as error:
            errors.append((file, str(error)))
    return errors or KeptVolume(found, image, arrays, len(image.voxels))


def _image(found: FoundVolume, axis: Axis, stored_window: bool) -> Volume:
    if found.dicom:
        return read_instances(_instances(found), axis, stored_window)
    channels = [
        _picture(file) if is_picture(file) else read_nifti(file, axis) for file in found.files
    ]
    first = channels[0]
    for channel in channels[1:]:
        if channel.voxels.shape != first.voxels.shape or not same_place(first, channel):
            raise UnreadableError(f"covers another place than its channel {channel.files[0].name}")
    voxels = np.concatenate([channel.voxels for channel in channels], axis=1)
    return replace(first, voxels=voxels, files=found.files)


def _instances(found: FoundVolume) -> Sequence[Instance]:
    return found.instances or [read_instance(file) for file in found.files]


def _picture(file: Path) -> Volume:
    """A picture as a volume of one slice, with a channel, or three where it has colours."""
    pixels = read_image(file, 3)
    grey = bool((pixels == pixels[:1]).all())
    return Volume(pixels[None, :1] if grey else pixels[None], (file,))


def _mask(file: Path, found: FoundVolume, image: Volume, axis: Axis) -> Volume:
    """Class numbers of all slices, as the image has them."""
    if not is_nifti(file):
        numbers = read_segmentation(file, image, _instances(found))
        return replace(image, voxels=numbers[:, None], files=(file,), warnings=())
    mask = read_nifti(file, axis)
    whole = (mask.voxels >= 0) & (mask.voxels <= 255) & (mask.voxels == np.floor(mask.voxels))
    if not whole.all():
        value = mask.voxels[~whole][0]
        raise UnreadableError(f"has the value {value:g}; class numbers are whole, 0–255")
    return replace(mask, voxels=mask.voxels.astype(np.uint8))


def _check_mask(mask: Volume, image: Volume) -> None:
    sizes = [(len(each.voxels), *each.voxels.shape[2:]) for each in (mask, image)]
    if sizes[0] != sizes[1]:
        one, other = ("×".join(map(str, size)) for size in sizes)
        raise UnreadableError(f"has {one} voxels (slices × rows × columns), its image {other}")
    if not same_place(image, mask):
        raise UnreadableError("lies elsewhere than its image: origin or voxel size differ")


def _check_single(image: Volume) -> None:
    if len(image.voxels) > 1:
        raise UnreadableError(f"is one picture for a volume of {len(image.voxels)} slices")
