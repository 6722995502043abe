"""DICOM images as files without a patient's name: NIfTI, or pictures where no place is known."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from polyclinic.data.case_files import CaseFiles
from polyclinic.data.errors import DataError
from polyclinic.data.formats.nifti import is_nifti, stem, write_nifti
from polyclinic.data.formats.store import kept_volume
from polyclinic.data.formats.volume import Array, Volume

Spacing = tuple[float, float]


def ending(file: Path) -> str:
    """What follows the file's name: `.png`, `.nii.gz`."""
    return file.name[len(stem(file)) :] if is_nifti(file) else file.suffix


def convert_volume(name: str, cases: Sequence[CaseFiles], folder: Path) -> set[Spacing | None]:
    """Write a volume, its mask and its labels; gives the spacing that these files cannot say."""
    first = cases[0]
    volume = kept_volume(first.slices[first.image][0])
    if volume.affine is not None and volume.voxels.shape[1] > 1:
        raise DataError([f"{first.image}: volumes in colours cannot be converted"])
    _write(name, folder / "images", volume, volume.voxels)
    for part, file in _annotations(first):
        if file in first.slices:
            _write(name, folder / part, volume, kept_volume(first.slices[file][0]).voxels)
    for case in cases:
        for part, file in _annotations(case):
            if file not in case.slices:
                (folder / part).mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, folder / part / f"{case.name}{ending(file)}")
    return {volume.spacing} if volume.affine is None else set()


def _annotations(case: CaseFiles) -> list[tuple[str, Path]]:
    named = {"masks": case.mask, "views": case.view}
    own = [(part, file) for part, file in named.items() if file]
    return [*own, *((f"labels/{kind}", file) for kind, file in case.labels.items())]


def _write(name: str, folder: Path, volume: Volume, voxels: Array) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if volume.affine is None:
        for number, frame in enumerate(voxels):
            own = f"{name}-{number:03d}" if len(voxels) > 1 else name
            _write_picture(folder / own, frame)
        return
    # Frame, row and column, of which NIfTI has the last first.
    stored = volume.restored(voxels[:, 0]).transpose(2, 1, 0)
    affine = volume.affine[:, [2, 1, 0, 3]]
    write_nifti(folder / f"{name}.nii.gz", np.ascontiguousarray(stored), affine)


def _write_picture(path: Path, frame: Array) -> None:
    """A PNG where 8 bits are enough, else the numbers themselves."""
    if frame.dtype != np.uint8:
        np.save(path.with_name(f"{path.name}.npy"), frame)
        return
    pixels = frame[0] if len(frame) == 1 else frame.transpose(1, 2, 0)
    Image.fromarray(np.ascontiguousarray(pixels)).save(path.with_name(f"{path.name}.png"))
