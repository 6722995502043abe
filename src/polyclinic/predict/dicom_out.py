"""Masks as DICOM: segmentations (DICOM-SEG) and, where those cannot be, secondary captures."""

import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyclinic.data.formats.needed import needed
from polyclinic.data.formats.volume import Volume
from polyclinic.data.tasks import Task

MAKER = "Polyclinic"
SERIES_NUMBER = 900  # above those that scanners give


class NotDescribable(ValueError):
    """A kind of image for which there can be no segmentation, such as a photograph of the eye."""


def write_segmentation(path: Path, volume: Volume, stored: NDArray[np.uint8], task: Task) -> None:
    """Write a DICOM-SEG with a segment for each class, which names the files it is about.

    `stored` is frames × rows × columns in the order of the volume's files.
    """
    highdicom = needed("highdicom")
    dicom = needed("pydicom")
    sources = [dicom.dcmread(file) for file in volume.files]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what is unusual in the source is not ours to mend
        try:
            segmentation = highdicom.seg.Segmentation(
                source_images=sources,
                pixel_array=np.ascontiguousarray(stored),
                segmentation_type=highdicom.seg.SegmentationTypeValues.BINARY,
                segment_descriptions=_segments(highdicom, dicom, task),
                series_description=f"{task.name}: segmentation",
                **_series(highdicom, task),
            )
        # For kinds of images it knows nothing of, highdicom misses attributes and raises anything.
        except (AttributeError, ValueError, KeyError, TypeError, NotImplementedError) as error:
            raise NotDescribable(str(error)) from error
        segmentation.save_as(path)


def write_capture(path: Path, source: Path, mask: NDArray[np.uint8], task: Task) -> None:
    """Write class numbers as a secondary capture in the study of its source, which it names."""
    highdicom = needed("highdicom")
    dicom = needed("pydicom")
    about = dicom.dcmread(source, stop_before_pixels=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        capture = highdicom.sc.SCImage.from_ref_dataset(
            ref_dataset=about,
            pixel_array=np.ascontiguousarray(mask),
            photometric_interpretation="MONOCHROME2",
            bits_allocated=8,
            coordinate_system=highdicom.CoordinateSystemNames.PATIENT,
            patient_orientation=about.get("PatientOrientation") or ("L", "P"),
            series_description=f"{task.name}: class numbers",
            **_series(highdicom, task, capture=True),
        )
    capture.DerivationDescription = "class numbers: " + ", ".join(
        f"{number} {name}" for number, name in enumerate(task.classes)
    )
    reference = dicom.Dataset()
    reference.ReferencedSOPClassUID = about.SOPClassUID
    reference.ReferencedSOPInstanceUID = about.SOPInstanceUID
    capture.SourceImageSequence = dicom.Sequence([reference])
    capture.save_as(path)


def _series(highdicom: Any, task: Task, *, capture: bool = False) -> dict[str, Any]:
    """What a new series of this program says of itself."""
    device = {
        "manufacturer_model_name": f"model for {task.name}",
        "software_versions": version("polyclinic"),
        "device_serial_number": "none",
    }
    return {
        "series_instance_uid": highdicom.UID(),
        "series_number": SERIES_NUMBER,
        "sop_instance_uid": highdicom.UID(),
        "instance_number": 1,
        "manufacturer": MAKER,
        **({} if capture else device),
    }


def _segments(highdicom: Any, dicom: Any, task: Task) -> list[Any]:
    codes = dicom.sr.codedict.codes
    algorithm = highdicom.AlgorithmIdentificationSequence(
        name=f"{MAKER} {task.name}",
        version=version("polyclinic"),
        family=codes.cid7162.ArtificialIntelligence,
    )
    return [
        highdicom.seg.SegmentDescription(
            segment_number=number,
            segment_label=name,
            segmented_property_category=codes.SCT.AnatomicalStructure,
            segmented_property_type=codes.SCT.AnatomicalStructure,
            algorithm_type="AUTOMATIC",
            algorithm_identification=algorithm,
        )
        for number, name in enumerate(task.classes)
        if number
    ]
