"""Masks back into the world they came from: as PNG, NIfTI, or DICOM that names its source."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from polyclinic.data.formats.needed import needed
from polyclinic.data.formats.nifti import is_nifti, write_nifti
from polyclinic.data.formats.volume import Volume
from polyclinic.data.tasks import Task
from polyclinic.predict.dicom_out import NotDescribable, write_capture, write_segmentation
from polyclinic.predict.inputs import Input, Scan
from polyclinic.runs import replacing

Masks = NDArray[np.uint8]  # slices × rows × columns, as predicted


def write_masks(folder: Path, given: Input, scan: Scan, masks: Masks, task: Task) -> Path:
    """Write the masks of one case in the geometry of its files, and give the file's path.

    A picture's is a PNG with class numbers. Of DICOM it is a DICOM-SEG or, where its kind of image
    cannot have one, a secondary capture with class numbers; several frames of such a kind are a
    NIfTI file.
    """
    target = folder / given.name
    volume = scan.volume
    if volume is None:
        picture = Image.fromarray(masks[0])
        return _written(target, ".png", lambda path: picture.save(path, format="PNG"))
    stored = volume.restored(masks)
    if is_nifti(given.files[0]):
        return _written(target, ".nii.gz", lambda path: _nifti(path, volume, stored))
    try:
        return _written(target, ".dcm", lambda path: write_segmentation(path, volume, stored, task))
    except NotDescribable:
        if len(stored) > 1:
            return _written(target, ".nii.gz", lambda path: _nifti(path, volume, stored))
        file = volume.files[0]
        return _written(target, ".dcm", lambda path: write_capture(path, file, stored[0], task))


def _written(target: Path, suffix: str, write: Callable[[Path], None]) -> Path:
    path = target.with_name(target.name + suffix)
    with replacing(path) as unfinished:
        # Libraries choose the format by the ending.
        named = unfinished.with_name(f".{path.name}.part{suffix}")
        try:
            write(named)
            named.replace(unfinished)
        finally:
            named.unlink(missing_ok=True)
    return path


def _nifti(path: Path, volume: Volume, stored: Masks) -> None:
    """The file has the shape and the affine of its source; without a place it is the identity."""
    source = volume.files[0]
    if is_nifti(source):
        shape = needed("nibabel").load(source).shape
        stored = stored.reshape(shape) if np.prod(shape) == stored.size else stored
    affine = np.eye(4) if volume.affine is None else volume.affine
    write_nifti(path, np.ascontiguousarray(stored), affine)
