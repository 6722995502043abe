"""Volumes out of whatever a path holds."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from polyclinic.data.errors import UnreadableError
from polyclinic.data.formats.dicom import read_instances
from polyclinic.data.formats.instances import Instance, is_dicom, read_instance, volumes_of
from polyclinic.data.formats.limits import MAX_FILES
from polyclinic.data.formats.nifti import is_nifti, read_nifti
from polyclinic.data.formats.volume import Axis, Volume, usual_axis

Left = tuple[Path, str]  # a file, and why it is no part of a volume


@dataclass(frozen=True)
class Stack:
    """The files of one volume, not read yet; `instances` are those of DICOM."""

    files: tuple[Path, ...]
    instances: tuple[Instance, ...] = ()

    def read(self, axis: Axis | None = None, *, stored_window: bool = False) -> Volume:
        """The volume, its slices along `axis`, by default as the format has them."""
        chosen = axis or usual_axis(dicom=bool(self.instances))
        if self.instances:
            return read_instances(self.instances, chosen, stored_window)
        return read_nifti(self.files[0], chosen)


def is_volume(path: Path) -> bool:
    """Whether it is a file that this package reads."""
    return is_nifti(path) or is_dicom(path)


def stacks_of(files: Sequence[Path]) -> tuple[list[Stack], list[Left]]:
    """The volumes that files make, and what belongs to none of them.

    Segmentations are left out: they say what images show.
    """
    stacks = [Stack((file,)) for file in files if is_nifti(file)]
    instances, left = read_instances_of([file for file in files if not is_nifti(file)])
    left += [(each.file, "is a segmentation, no image") for each in instances if each.segmentation]
    groups = volumes_of([each for each in instances if not each.segmentation])
    stacks += [Stack(tuple(each.file for each in group), group) for group in groups]
    return stacks, left


def read_instances_of(files: Sequence[Path]) -> tuple[list[Instance], list[Left]]:
    """The DICOM files among these by their headers, and why others are left out."""
    instances, left = [], []
    for file in files:
        try:
            if not is_dicom(file):
                raise UnreadableError("is neither NIfTI nor DICOM")
            instances.append(read_instance(file))
        except UnreadableError as error:
            left.append((file, str(error)))
    return instances, left


def files_below(folder: Path) -> list[Path]:
    """All files at any depth by name, hidden ones left out; too many raise."""
    files: list[Path] = []
    seen: set[str] = set()
    for place, folders, names in os.walk(folder, followlinks=True):
        real = os.path.realpath(place)
        # A link may lead back to where it stands.
        folders[:] = [] if real in seen else sorted(_shown(folders))
        files += [Path(place, name) for name in _shown(names)] if real not in seen else []
        seen.add(real)
        if len(files) > MAX_FILES:
            raise UnreadableError(f"holds more than {MAX_FILES:,} files")
    return sorted(files)


def _shown(names: Sequence[str]) -> list[str]:
    return [name for name in names if not name.startswith(".") and name != "Thumbs.db"]
