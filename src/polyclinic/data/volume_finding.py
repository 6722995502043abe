"""Which volumes a site has, and which masks and labels belong to them: by reference or by name."""

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from polyclinic.data.errors import Findings
from polyclinic.data.formats.instances import Instance, duplicates, volumes_of
from polyclinic.data.formats.nifti import is_nifti, stem
from polyclinic.data.formats.reading import files_below, is_volume, read_instances_of
from polyclinic.data.formats.store import Store
from polyclinic.data.readers import SUFFIXES as PICTURES
from polyclinic.data.site_files import SiteToml

Folders = Mapping[str, Path]  # "mask" or a kind of label → the folder that holds its files


@dataclass(frozen=True)
class FoundVolume:
    """A volume's files, not read yet, and by which names others may belong to it.

    `instances` are the headers of DICOM files, as far as they were read in this process.
    """

    name: str
    patient: str
    files: tuple[Path, ...]
    dicom: bool = False
    names: tuple[str, ...] = ()
    instances: tuple[Instance, ...] = ()
    annotations: Mapping[str, Path] = field(default_factory=dict)  # mask or kind → its file
    shared: bool = False  # its folder holds other volumes, too

    @property
    def place(self) -> Path:
        """What a message names: the file, or the folder that a series has for itself."""
        single = len(self.files) == 1 or not self.dicom or self.shared
        return self.files[0] if single else self.files[0].parent


def is_picture(file: Path) -> bool:
    """Whether the file is one picture (or the boxes of one), not a volume."""
    return file.suffix.lower() in (*PICTURES, ".csv")


def find_volumes(
    images: Path, folders: Folders, toml: SiteToml, store: Store, mistakes: Findings
) -> list[FoundVolume]:
    """The NIfTI and DICOM volumes below `images`, each with its masks and labels.

    Headers are read once: what was found is kept until a file changes.
    """
    files = _volume_files(images)
    if not files:
        return []
    beside = [file for folder in folders.values() for file in _listed(folder)]
    everything = [*files, *beside]
    index = store.path(everything, f"index {toml.modality} {list(folders)}").with_suffix(".index")
    if index.is_file():
        return _housed(_from_index(json.loads(index.read_text()), everything))
    before = len(mistakes.lines)
    found = [
        FoundVolume(stem(file), stem(file), (file,), names=(stem(file),))
        for file in files
        if is_nifti(file)
    ]
    found += _dicom_volumes([file for file in files if not is_nifti(file)], images, store, mistakes)
    _check_modality([each for volume in found for each in volume.instances], toml, mistakes)
    for what, folder in folders.items():
        found = _matched(found, what, folder, mistakes)
    # Only now, so that nobody is told that what belongs to them belongs to nothing.
    found = [volume for volume in found if _counts(volume, toml)]
    if len(mistakes.lines) == before:
        store.write(index, json.dumps(_index(found, everything)))
    return _housed(found)


def _housed(found: Sequence[FoundVolume]) -> list[FoundVolume]:
    """The volumes, and of each whether it shares its folder."""
    inside = Counter(volume.files[0].parent for volume in found)
    return [replace(each, shared=inside[each.files[0].parent] > 1) for each in found]


def _index(found: Sequence[FoundVolume], files: Sequence[Path]) -> list[object]:
    """What was found, with files by their numbers, because their names may be patients'."""
    number = {file: number for number, file in enumerate(files)}
    return [
        (
            volume.name,
            volume.patient,
            [number[file] for file in volume.files],
            volume.dicom,
            {what: number[file] for what, file in volume.annotations.items()},
        )
        for volume in found
    ]


def _from_index(
    index: list[tuple[str, str, list[int], bool, dict[str, int]]], files: Sequence[Path]
) -> list[FoundVolume]:
    return [
        FoundVolume(
            name,
            patient,
            tuple(files[number] for number in numbers),
            dicom,
            annotations={what: files[number] for what, number in annotations.items()},
        )
        for name, patient, numbers, dicom, annotations in index
    ]


def _listed(folder: Path) -> list[Path]:
    return files_below(folder) if folder.is_dir() else []


def _volume_files(folder: Path) -> list[Path]:
    """All files at any depth, but for the pictures that lie in the folder itself."""
    return [
        file
        for file in _listed(folder)
        if not (file.parent == folder and (is_picture(file) or not is_volume(file)))
    ]


def _dicom_volumes(
    files: Sequence[Path], images: Path, store: Store, mistakes: Findings
) -> list[FoundVolume]:
    instances, left = read_instances_of(files)
    for file, reason in left:
        mistakes.add(reason, file)
    for each in instances:
        if each.segmentation:
            mistakes.add("is a segmentation; it belongs in masks/", each.file)
    for first, second in duplicates(instances):
        name = first.file.relative_to(images)
        mistakes.add(f"has the same SOP instance UID as {name}; keep one of them", second.file)
    groups = volumes_of([each for each in instances if not each.segmentation])
    inside = Counter(each.file.parent for group in groups for each in group)
    return [_dicom_volume(group, images, inside, store) for group in groups]


def _dicom_volume(
    group: tuple[Instance, ...], images: Path, inside: Mapping[Path, int], store: Store
) -> FoundVolume:
    """A volume called by hashes; files that belong to it may be called as its folder or file."""
    first = group[0]
    uid = first.series if len(group) > 1 else first.uid
    name = f"{store.hashed(first.study)}-{store.hashed(uid)}"
    names = [name, uid]
    if len(group) == 1:
        names.append(first.file.stem)
    folder = first.file.parent
    if folder != images and inside[folder] == len(group):
        names.append(folder.name)
    patient = store.hashed(f"patient {first.patient}")
    files = tuple(each.file for each in group)
    return FoundVolume(name, patient, files, True, tuple(names), group)


def _check_modality(instances: Sequence[Instance], toml: SiteToml, mistakes: Findings) -> None:
    if toml.modality:
        for each in instances:
            if each.modality != toml.modality:
                text = f"is of modality {each.modality or 'none'}, the site of {toml.modality}"
                mistakes.add(text, each.file)
        return
    counts = Counter(each.modality for each in instances)
    if len(counts) > 1:
        told = ", ".join(f"{name or 'none'} {count}" for name, count in counts.most_common())
        usual = counts.most_common(1)[0][0]
        mistakes.add(
            f"holds images of several modalities ({told}); "
            f'say which one counts: modality = "{usual}" in site.toml, or --modality {usual} where '
            "you import"
        )


def _counts(volume: FoundVolume, toml: SiteToml) -> bool:
    """Whether all its images are of the modality that the site names, if any."""
    return all(each.modality == (toml.modality or each.modality) for each in volume.instances)


def _matched(
    found: Sequence[FoundVolume], what: str, folder: Path, mistakes: Findings
) -> list[FoundVolume]:
    """The volumes with their files of `what`; files that belong to none are mistakes."""
    by_name = {name: number for number, volume in enumerate(found) for name in volume.names}
    matches: dict[int, list[Path]] = defaultdict(list)
    files = _volume_files(folder)
    for number, file in _referring([file for file in files if not is_nifti(file)], found, mistakes):
        matches[number].append(file)
    for file in files:
        if is_nifti(file) and stem(file) in by_name:
            matches[by_name[stem(file)]].append(file)
        elif is_nifti(file):
            mistakes.add(f"there is no image {stem(file)} to it", file)
    for file in sorted(folder.iterdir()) if folder.is_dir() else ():
        if is_picture(file) and file.stem in by_name:
            matches[by_name[file.stem]].append(file)
    for several in matches.values():
        for file in several[1:]:
            mistakes.add(f"is a second {what} of the image that has {several[0].name}", file)
    return [
        replace(volume, annotations={**volume.annotations, what: matches[number][0]})
        if number in matches
        else volume
        for number, volume in enumerate(found)
    ]


def _referring(
    files: Sequence[Path], found: Sequence[FoundVolume], mistakes: Findings
) -> list[tuple[int, Path]]:
    """Each segmentation with the number of the volume that it names the images of."""
    by_uid = {each.uid: number for number, volume in enumerate(found) for each in volume.instances}
    instances, left = read_instances_of(files)
    for file, reason in left:
        mistakes.add(reason, file)
    pairs = []
    for each in instances:
        about = {by_uid[uid] for uid in each.references if uid in by_uid}
        if not each.segmentation:
            mistakes.add("is a DICOM image; masks are segmentations (SEG), NIfTI or PNG", each.file)
        elif len(about) == 1:
            pairs.append((about.pop(), each.file))
        else:
            words = "several volumes" if about else "no image of this site"
            mistakes.add(f"is a segmentation of {words}", each.file)
    return pairs
