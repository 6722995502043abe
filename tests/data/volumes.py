"""Small volumes on disk for tests: NIfTI in any orientation, DICOM series in any plane."""

from itertools import permutations, product
from pathlib import Path

import nibabel
import numpy as np
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.uid import ExplicitVRLittleEndian, MRImageStorage, generate_uid

# Signed permutations: which canonical axis a stored one is, and whether it runs the other way.
ORIENTATIONS = [
    (order, flips) for order in permutations(range(3)) for flips in product((1, -1), repeat=3)
]


def proper(orientation) -> bool:
    """Whether it is a turn, not a mirror image."""
    order, flips = orientation
    return np.linalg.det(np.eye(3)[list(order)] * np.array(flips)[:, None]) > 0


def reoriented(array, affine, orientation):
    """The same volume in space, stored in another order (and its affine)."""
    order, flips = orientation
    stored = array.transpose(order)
    change = np.eye(4)
    change[:3, :3] = np.eye(3)[:, list(order)] * flips
    for axis, flip in enumerate(flips):
        if flip < 0:
            stored = np.flip(stored, axis)
            change[:3, 3] += np.eye(3)[order[axis]] * (stored.shape[axis] - 1)
    return stored, affine @ change


def write_nifti(path: Path, array, affine=None, **header) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    image = nibabel.Nifti1Image(array, np.eye(4) if affine is None else affine)
    image.header.set_xyzt_units("mm")
    for name, value in header.items():
        image.header[name] = value
    nibabel.save(image, path)
    return path


def write_series(
    folder: Path,
    frames,
    *,
    rows=(1.0, 0.0, 0.0),
    columns=(0.0, 1.0, 0.0),
    spacing=(1.0, 1.0),
    step=3.0,
    start=(0.0, 0.0, 0.0),
    patient="P1",
    **attributes,
) -> list[Path]:
    """A DICOM series of 16-bit `frames`, its files named in another order than they lie."""
    folder.mkdir(parents=True, exist_ok=True)
    series, study = generate_uid(), generate_uid()
    normal = np.cross(rows, columns)
    files = []
    for number, frame in enumerate(frames):
        data = plain_dicom(frame)
        data.PatientID, data.PatientName = patient, f"{patient}^Somebody"
        data.StudyInstanceUID, data.SeriesInstanceUID = study, series
        data.ImagePositionPatient = [float(x) for x in np.array(start) + number * step * normal]
        data.ImageOrientationPatient = [*rows, *columns]
        data.PixelSpacing, data.SliceThickness = list(spacing), step
        for name, value in attributes.items():
            setattr(data, name, value)
        files.append(folder / f"IM{len(frames) - number:04d}")
        data.save_as(files[-1], enforce_file_format=True)
    return files


def plain_dicom(pixels, modality="MR") -> Dataset:
    """One grey image of 8 or 16 bits, without a place."""
    data = Dataset()
    data.file_meta = FileMetaDataset()
    data.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    data.SOPClassUID = data.file_meta.MediaStorageSOPClassUID = MRImageStorage
    data.SOPInstanceUID = data.file_meta.MediaStorageSOPInstanceUID = generate_uid()
    data.StudyInstanceUID, data.SeriesInstanceUID = generate_uid(), generate_uid()
    data.PatientID, data.PatientName, data.Modality = "P1", "Somebody", modality
    data.PatientBirthDate = data.PatientSex = data.StudyID = data.AccessionNumber = ""
    data.StudyDate = data.StudyTime = data.ReferringPhysicianName = ""
    data.FrameOfReferenceUID, data.InstanceNumber = generate_uid(), 1
    data.Manufacturer = data.PositionReferenceIndicator = ""
    data.Rows, data.Columns = pixels.shape
    data.SamplesPerPixel, data.PhotometricInterpretation = 1, "MONOCHROME2"
    bits = 8 * pixels.dtype.itemsize
    data.BitsAllocated = data.BitsStored = bits
    data.HighBit = bits - 1
    data.PixelRepresentation = int(pixels.dtype.kind == "i")
    data.PixelData = pixels.tobytes()
    return data
