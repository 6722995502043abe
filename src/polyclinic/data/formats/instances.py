"""What the headers of DICOM files say, and which files make a volume together."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from polyclinic.data.errors import UnreadableError
from polyclinic.data.formats.limits import MAX_VOXELS, check_file, check_size
from polyclinic.data.formats.needed import needed

SUFFIXES = (".dcm", ".dicom", ".ima")
NO_IMAGES = ("RTDOSE", "RTPLAN", "RTSTRUCT", "PR", "KO", "SR", "REG", "FID", "RWV")
Vector = tuple[float, ...]


@dataclass(frozen=True)
class Place:
    """Where a frame lies: its first pixel, and the directions along a row and down a column."""

    position: Vector
    orientation: Vector


@dataclass(frozen=True)
class Instance:
    """One DICOM file by its header; the identifiers are the hospital's own and stay in memory."""

    file: Path
    patient: str
    study: str
    series: str
    uid: str  # of the SOP instance
    modality: str
    rows: int
    columns: int
    places: tuple[Place | None, ...]  # one for each frame
    spacing: tuple[float, float] | None  # millimetres between rows and between columns
    between: float  # millimetres between slices as far as known, for single ones
    references: tuple[str, ...] = ()  # of a segmentation: the SOP instances that it is about

    @property
    def segmentation(self) -> bool:
        """Whether it is a DICOM-SEG."""
        return self.modality == "SEG"


def is_dicom(path: Path) -> bool:
    """Whether the file's name or, where it has no ending, its beginning says so."""
    if path.suffix.lower() in SUFFIXES:
        return True
    # Archives name files IM0001, or by a number with dots in it.
    if path.suffix and not path.suffix[1:].isdecimal():
        return False
    try:
        check_file(path)
        with path.open("rb") as file:
            return file.read(132)[128:] == b"DICM"
    except (OSError, UnreadableError):
        return False


def read_instance(path: Path) -> Instance:
    """What the header says; a file without an image is refused."""
    dicom = needed("pydicom")
    dicom.config.settings.reading_validation_mode = dicom.config.IGNORE
    check_file(path)
    try:
        return _instance(path, dicom.dcmread(path, stop_before_pixels=True))
    except UnreadableError:
        raise
    except Exception as error:  # a damaged header makes pydicom raise anything
        raise UnreadableError(f"cannot be read: {in_words(error)}") from error


def volumes_of(instances: Sequence[Instance]) -> list[tuple[Instance, ...]]:
    """The instances that make a volume together, in the order of their files.

    Images of a series that say where they lie are the slices of one; every other file is one of
    its own, with as many slices as it has frames.
    """
    series: dict[str, list[Instance]] = defaultdict(list)
    for instance in instances:
        placed = len(instance.places) == 1 and instance.places[0] is not None
        series[f"series {instance.series}" if placed else instance.uid].append(instance)
    return [tuple(group) for group in series.values()]


def duplicates(instances: Iterable[Instance]) -> list[tuple[Instance, Instance]]:
    """Pairs of files with the same SOP instance UID."""
    first: dict[str, Instance] = {}
    return [
        (first[each.uid], each)
        for each in instances
        if first.setdefault(each.uid, each) is not each
    ]


def _instance(path: Path, header: Any) -> Instance:
    modality = str(header.get("Modality") or "")
    if modality in NO_IMAGES or "Rows" not in header or "Columns" not in header:
        said = f"modality {modality}" if modality else "an index, or cut off: it says no modality"
        raise UnreadableError(f"is DICOM without an image ({said})")
    rows, columns = int(header.Rows), int(header.Columns)
    frames = int(header.get("NumberOfFrames") or 1)
    samples = int(header.get("SamplesPerPixel") or 1)
    check_size((frames, rows, columns, samples), MAX_VOXELS)
    if min(frames, rows, columns) < 1:
        raise UnreadableError(f"says that it has {frames}×{rows}×{columns} pixels")
    uid, series = str(header.SOPInstanceUID), str(header.get("SeriesInstanceUID") or "")
    groups = [FrameGroups(header, number) for number in range(frames)]
    return Instance(
        file=path,
        patient=_patient(header),
        study=str(header.get("StudyInstanceUID") or ""),
        series=series or uid,
        uid=uid,
        modality=modality,
        rows=rows,
        columns=columns,
        places=tuple(map(_place, groups)),
        spacing=_spacing(groups[0]),
        between=_between(groups[0]),
        references=_references(header) if modality == "SEG" else (),
    )


class FrameGroups:
    """The attributes of one frame: its own, else those all frames share, else the file's."""

    def __init__(self, header: Any, frame: int) -> None:
        shared = header.get("SharedFunctionalGroupsSequence") or ()
        own = header.get("PerFrameFunctionalGroupsSequence") or ()
        self._header = header
        self._groups = [*(own[frame : frame + 1]), *shared[:1]]

    def get(self, name: str, group: str) -> Any:
        """The value of `name`, which in a file of many frames stands in the sequence `group`."""
        for each in self._groups:
            items = each.get(group) or ()
            if items and items[0].get(name) is not None:
                return items[0].get(name)
        return self._header.get(name)


def _patient(header: Any) -> str:
    """The patient's identifier, else the study's, else the image's own."""
    number = str(header.get("PatientID") or "").strip()
    if number:
        return f"{header.get('IssuerOfPatientID') or ''}\n{number}"
    return str(header.get("StudyInstanceUID") or header.SOPInstanceUID)


def _place(groups: FrameGroups) -> Place | None:
    position = groups.get("ImagePositionPatient", "PlanePositionSequence")
    orientation = groups.get("ImageOrientationPatient", "PlaneOrientationSequence")
    if not position or not orientation:
        return None
    place = Place(tuple(map(float, position)), tuple(map(float, orientation)))
    numbers = (*place.position, *place.orientation)
    if len(numbers) != 9 or not np.isfinite(numbers).all():
        raise UnreadableError("says where it lies in numbers that are none")
    return place


def _spacing(groups: FrameGroups) -> tuple[float, float] | None:
    for name in ("PixelSpacing", "ImagerPixelSpacing", "NominalScannedPixelSpacing"):
        found = groups.get(name, "PixelMeasuresSequence")
        if found and len(found) == 2:
            rows, columns = float(found[0]), float(found[1])
            if not (np.isfinite((rows, columns)).all() and min(rows, columns) > 0):
                raise UnreadableError(f"says that its pixels are {rows:g}×{columns:g} mm large")
            return rows, columns
    return None


def _between(groups: FrameGroups) -> float:
    for name in ("SpacingBetweenSlices", "SliceThickness"):
        found = groups.get(name, "PixelMeasuresSequence")
        if found and float(found) > 0:
            return float(found)
    return 1.0


def _references(header: Any) -> tuple[str, ...]:
    """The SOP instances that the frames of a segmentation name, else its series' list."""
    named: dict[str, None] = {}
    for frame in header.get("PerFrameFunctionalGroupsSequence") or ():
        for derived in frame.get("DerivationImageSequence") or ():
            for source in derived.get("SourceImageSequence") or ():
                named[str(source.ReferencedSOPInstanceUID)] = None
    if not named:
        for series in header.get("ReferencedSeriesSequence") or ():
            for source in series.get("ReferencedInstanceSequence") or ():
                named[str(source.ReferencedSOPInstanceUID)] = None
    return tuple(named)


def in_words(error: Exception) -> str:
    """What a package said was wrong, on one line that is not too long."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) < 300 else f"{text[:300]}…"
