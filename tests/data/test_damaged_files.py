"""Whatever bytes a file holds, reading it gives an image or says why not; nothing else happens."""

import warnings
from pathlib import Path

import h5py
import numpy as np
import pydicom
import pytest
from PIL import Image

from polyclinic.data.errors import UnreadableError
from polyclinic.data.formats.instances import read_instance
from polyclinic.data.formats.nifti import read_nifti
from polyclinic.data.formats.segmentation import read_segmentation
from polyclinic.data.readers import datasets, read_image, read_mask
from tests.data.volumes import (
    draw_volume,
    read_dicom,
    write_nifti,
    write_segmentation,
    write_series,
)
from tests.within import within

PYDICOM = Path(pydicom.__file__).parent / "data" / "test_files"
REAL = (
    "MR_small.dcm",
    "MR_small_RLE.dcm",
    "MR_small_jp2klossless.dcm",
    "SC_rgb_small_odd_jpeg.dcm",
)


def write_originals(folder):
    """A small valid file of each kind."""
    image, mask = draw_volume(0, slices=2, side=16)
    small = image[0].astype(np.uint8)
    for name in ("a.png", "a.jpg", "a.tif"):
        Image.fromarray(small).save(folder / name)
    Image.fromarray(small).convert("P").save(folder / "palette.png")
    np.save(folder / "a.npy", image[0])
    with h5py.File(folder / "a.h5", "w") as file:
        file["image"] = small
        file.create_dataset("mask", data=mask[0], chunks=(8, 8), compression="gzip")
    write_nifti(folder / "a.nii", image)
    write_nifti(folder / "a.nii.gz", image)
    for name in REAL:
        (folder / name).write_bytes((PYDICOM / name).read_bytes())
    files = write_series(folder / "series", image)
    write_segmentation(folder / "seg.dcm", files, mask)
    return [path for path in sorted(folder.iterdir()) if path.is_file()]


def damaged(data: bytes, rng: np.random.Generator) -> bytes:
    """Bytes changed, cut off, taken out, doubled or set to zero, most of them near the start."""
    changed = bytearray(data)
    for _ in range(rng.integers(1, 5)):
        place = int(len(changed) * rng.random() ** rng.integers(1, 4))
        length = int(rng.integers(1, 9))
        how = rng.integers(5)
        if how == 0:
            changed[place : place + length] = rng.bytes(length)
        elif how == 1:
            del changed[max(place, 4) :]
        elif how == 2:
            del changed[place : place + length]
        elif how == 3:
            changed[place:place] = changed[place : place + length]
        else:
            changed[place : place + length] = b"\xff" * length
    return bytes(changed)


def read(path, original, volume, instances):
    if original == "seg.dcm":
        read_segmentation(path, volume, instances)
    elif ".nii" in path.name:
        read_nifti(path)
    elif path.suffix == ".dcm":
        read_dicom([path], stored_window=True)
    else:
        datasets(path)
        read_image(path, 1)
        read_mask(path)


def try_damaged(folder, times):
    rng = np.random.default_rng(0)
    originals = write_originals(folder)
    files = sorted((folder / "series").iterdir())
    volume, instances = read_dicom(files), [read_instance(file) for file in files]
    read_whole = refused = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for original in originals:
            data = original.read_bytes()
            path = folder / "damaged" / original.name
            path.parent.mkdir(exist_ok=True)
            for number in range(times):
                path.write_bytes(damaged(data, rng))
                try:
                    with within(f"{original.name}, number {number}"):
                        read(path, original.name, volume, instances)
                    read_whole += 1
                except UnreadableError:
                    refused += 1
    return read_whole, refused


def test_damaged_files_never_end_in_a_traceback(tmp_path):
    read_whole, refused = try_damaged(tmp_path, times=25)

    assert read_whole + refused == 25 * 13
    assert min(read_whole, refused) > 20


@pytest.mark.slow
def test_thousands_of_damaged_files_never_end_in_a_traceback(tmp_path):
    read_whole, refused = try_damaged(tmp_path, times=500)

    assert read_whole + refused == 500 * 13
