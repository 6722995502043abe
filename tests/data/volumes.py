"""Small volumes on disk for tests: NIfTI in any orientation, DICOM series in any plane."""

from itertools import permutations, product
from pathlib import Path

import highdicom
import nibabel
import numpy as np
from pydicom import dcmread
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.sr.codedict import codes
from pydicom.uid import (
    EnhancedMRImageStorage,
    ExplicitVRLittleEndian,
    MRImageStorage,
    generate_uid,
)

from polyclinic.data.formats.dicom import read_instances
from polyclinic.data.formats.instances import read_instance

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
    series, study, frame_of_reference = generate_uid(), generate_uid(), generate_uid()
    normal = np.cross(rows, columns)
    files = []
    for number, frame in enumerate(frames):
        data = plain_dicom(frame)
        data.PatientID, data.PatientName = patient, f"{patient}^Somebody"
        data.StudyInstanceUID, data.SeriesInstanceUID = study, series
        data.FrameOfReferenceUID = frame_of_reference
        data.ImagePositionPatient = [float(x) for x in np.array(start) + number * step * normal]
        data.ImageOrientationPatient = [*rows, *columns]
        data.PixelSpacing, data.SliceThickness = list(spacing), step
        for name, value in attributes.items():
            setattr(data, name, value)
        files.append(folder / f"IM{len(frames) - number:04d}")
        data.save_as(files[-1], enforce_file_format=True)
    return files


def read_dicom(files, axis="acquired", **how):
    """The volume of DICOM files."""
    return read_instances([read_instance(file) for file in files], axis, **how)


def write_enhanced(path: Path, frames, *, spacing, step) -> Path:
    """A file of many frames, from the last slice to the first; slice n has the slope n + 1."""
    data = plain_dicom(frames[0])
    data.SOPClassUID = data.file_meta.MediaStorageSOPClassUID = EnhancedMRImageStorage
    data.NumberOfFrames, data.PixelData = len(frames), frames[::-1].tobytes()
    measures, plane, shared = Dataset(), Dataset(), Dataset()
    measures.PixelSpacing, measures.SliceThickness = list(spacing), step
    plane.ImageOrientationPatient = [1, 0, 0, 0, 1, 0]
    shared.PixelMeasuresSequence, shared.PlaneOrientationSequence = [measures], [plane]
    data.SharedFunctionalGroupsSequence = [shared]
    data.PerFrameFunctionalGroupsSequence = []
    for number in reversed(range(len(frames))):
        frame, position, values = Dataset(), Dataset(), Dataset()
        position.ImagePositionPatient = [0, 0, step * number]
        values.RescaleSlope, values.RescaleIntercept = number + 1, 0
        frame.PlanePositionSequence = [position]
        frame.PixelValueTransformationSequence = [values]
        data.PerFrameFunctionalGroupsSequence.append(frame)
    data.save_as(path, enforce_file_format=True)
    return path


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


def draw_volume(number: int, slices: int = 3, side: int = 32):
    """An image (int16) and a prostate-like mask, slices × rows × columns."""
    rng = np.random.default_rng(number)
    rows, columns = np.mgrid[:side, :side]
    distance = np.hypot(rows - side / 2 - rng.integers(-3, 4), columns - side / 3)
    radii = side / 6 + np.arange(slices)
    mask = (distance < radii[:, None, None]).astype(np.uint8)
    return (rng.normal(300, 30, mask.shape) + 400.0 * mask).astype(np.int16), mask


def as_stored(slices):
    """Axial slices in the order of a NIfTI array that counts to the left, the back, the head."""
    return slices.transpose(2, 1, 0)


def write_volume_site(folder: Path, volumes: int = 4, slices: int = 3, side: int = 32) -> Path:
    """NIfTI volumes with masks, called v0, v1, …, voxels 0.5 × 0.75 × 3 mm large."""
    for number in range(volumes):
        image, mask = draw_volume(number, slices, side)
        for what, array in (("images", image), ("masks", mask)):
            affine = np.diag([-0.5, -0.75, 3.0, 1.0])
            write_nifti(folder / what / f"v{number}.nii.gz", as_stored(array), affine)
    return folder


def write_segmentation(path: Path, files, masks, labels=("prostate",)) -> Path:
    """A DICOM-SEG made by highdicom: masks (frames × rows × columns) of these images."""
    path.parent.mkdir(parents=True, exist_ok=True)
    code = highdicom.sr.CodedConcept("41216001", "SCT", "Prostate")
    segments = [
        highdicom.seg.SegmentDescription(
            segment_number=number,
            segment_label=label,
            segmented_property_category=codes.SCT.Organ,
            segmented_property_type=code,
            algorithm_type=highdicom.seg.SegmentAlgorithmTypeValues.MANUAL,
        )
        for number, label in enumerate(labels, 1)
    ]
    made = highdicom.seg.Segmentation(
        source_images=[dcmread(file) for file in files],
        pixel_array=masks,
        segmentation_type=highdicom.seg.SegmentationTypeValues.BINARY,
        segment_descriptions=segments,
        series_instance_uid=generate_uid(),
        series_number=2,
        sop_instance_uid=generate_uid(),
        instance_number=1,
        manufacturer="none",
        manufacturer_model_name="none",
        software_versions="0",
        device_serial_number="0",
    )
    made.save_as(path)
    return path
