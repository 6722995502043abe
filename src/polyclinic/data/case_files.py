"""The cases of a site: pictures, and slices of volumes, each with its mask and its labels."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from polyclinic.data.box_files import SUFFIX, made_of_boxes
from polyclinic.data.errors import Findings
from polyclinic.data.formats.reading import is_volume
from polyclinic.data.formats.store import Slice, Store
from polyclinic.data.nnunet import find_cases, is_nnunet
from polyclinic.data.readers import SUFFIXES, datasets
from polyclinic.data.site_files import SPLITS, SiteToml
from polyclinic.data.volume_finding import find_volumes
from polyclinic.data.volume_reading import KeptVolume, read_volumes

NO_LABEL = "has no mask and no label"
LABEL_FOLDERS = ("labels", "weak")
VOLUMES = (".nii", ".nii.gz", ".dcm")
Pictures = Mapping[str, Mapping[str, Path]]  # "mask" or a kind → name of a case → file


@dataclass(frozen=True)
class CaseFiles:
    """The files of one case; `split` is None where the folder does not give one."""

    name: str
    patient: str
    split: str | None
    image: Path
    mask: Path | None = None
    labels: Mapping[str, Path] = field(default_factory=dict)  # kind → file
    volume: str | None = None  # the name of the volume of which the case is a slice
    slices: Mapping[Path, Slice] = field(default_factory=dict)  # file → what of it is the case's
    spacing: tuple[float, float] | None = None  # of rows and columns as the image's file says
    view: Path | None = None  # what the camera saw


@dataclass(frozen=True)
class Part:
    """The folders of one split, or of all cases where the site has no split of its own."""

    images: Path
    masks: Path
    split: str | None = None
    labels: Mapping[str, Path] = field(default_factory=dict)  # kind → folder
    nnunet: bool = False

    @property
    def views(self) -> Path:
        """The folder of what the camera saw."""
        return self.images.with_name("views")


def parts_of(folder: Path) -> list[Part]:
    """The folders that hold images, each with the split it stands for."""
    if is_nnunet(folder):
        train = Part(folder / "imagesTr", folder / "labelsTr", nnunet=True)
        test = Part(folder / "imagesTs", folder / "labelsTs", "test", nnunet=True)
        tested = test.images.is_dir() and test.masks.is_dir()
        return [replace(train, split="train"), test] if tested else [train]
    places = [(folder, None), *((folder / split, split) for split in SPLITS)]
    there = [(place, split) for place, split in places if (place / "images").is_dir()]
    if there and there[0][1] is None:
        there = there[:1]
    return [
        Part(place / "images", place / "masks", split, dict(_kinds(place)))
        for place, split in there
    ]


def _kinds(place: Path) -> Iterator[tuple[str, Path]]:
    for name in LABEL_FOLDERS:
        for kind in sorted((place / name).iterdir()) if (place / name).is_dir() else ():
            if kind.is_dir():
                yield kind.name, kind


def cases_of(
    part: Part, toml: SiteToml, store: Store, mistakes: Findings, warnings: Findings
) -> list[CaseFiles]:
    """All cases of these folders; what cannot be used or belongs to no case is a mistake."""
    if part.nnunet:
        found = find_cases(part.images, part.masks, mistakes)
        pictures: Pictures = {"mask": {}}
    else:
        folders = {"mask": part.masks, **part.labels}
        found = find_volumes(part.images, folders, toml, store, mistakes)
        pictures = {
            what: _files(folder, mistakes, boxes=made_of_boxes(what))
            for what, folder in folders.items()
        }
    kept = read_volumes(found, toml, store, mistakes, warnings)
    cases = [case for volume in kept for case in _slices(volume, part.split, pictures)]
    cases += [] if part.nnunet else _pictured(part, pictures, mistakes)
    if len(kept) == len(found):
        _check_used(cases, pictures, mistakes)
    places = {volume.name: volume.place for volume in found}
    bare = {
        places.get(case.volume or "", case.image): None
        for case in cases
        if not (case.mask or case.labels)
    }
    for place in bare:
        mistakes.add(NO_LABEL, place)
    views = _files(part.views, mistakes)
    for name in sorted(views.keys() - {case.name for case in cases}):
        mistakes.add(f"there is no image {name} to it", views[name])
    return [replace(case, view=views.get(case.name)) for case in cases]


def _slices(volume: KeptVolume, split: str | None, pictures: Pictures) -> Iterator[CaseFiles]:
    """The cases of a volume; a picture may belong to one slice, by the name of the case."""
    found = volume.found
    for number in range(volume.slices):
        name = f"{found.name}-{number:03d}" if volume.slices > 1 else found.name
        own = {what: files[name] for what, files in pictures.items() if name in files}
        annotations = {**found.annotations, **own}
        yield CaseFiles(
            name=name,
            patient=found.patient,
            split=split,
            image=found.files[0],
            mask=annotations.pop("mask", None),
            labels=annotations,
            volume=found.name,
            slices={file: (array, number) for file, array in volume.arrays.items()},
            spacing=volume.image.spacing,
        )


def _pictured(part: Part, pictures: Pictures, mistakes: Findings) -> Iterator[CaseFiles]:
    """The cases that are pictures; an HDF5 file may hold its mask and labels itself."""
    for name, image in _files(part.images, mistakes).items():
        inside = datasets(image)
        own = {what: files[name] for what, files in pictures.items() if name in files}
        within = {what: image for what in inside if what != "image"}
        annotations = {**within, **own}
        mask = annotations.pop("mask", None)
        yield CaseFiles(name, name, part.split, image, mask, annotations)


def _check_used(cases: list[CaseFiles], pictures: Pictures, mistakes: Findings) -> None:
    used = {file for case in cases for file in (case.mask, *case.labels.values())}
    for files in pictures.values():
        for name, file in sorted(files.items()):
            if file not in used:
                mistakes.add(f"there is no image {name} to it", file)


def _files(folder: Path, mistakes: Findings, *, boxes: bool = False) -> dict[str, Path]:
    """The pictures of a folder by case, in the order of their names."""
    files: dict[str, Path] = {}
    known = (*SUFFIXES, *((SUFFIX,) if boxes else ()))
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if path.name.startswith(".") or path.name == "Thumbs.db" or path.is_dir():
            continue
        if is_volume(path):
            continue
        if path.suffix.lower() not in known:
            mistakes.add(f"is of no known type; known are {', '.join((*known, *VOLUMES))}", path)
        elif path.stem in files:
            mistakes.add(f"is a second file of case {path.stem}", path)
        else:
            files[path.stem] = path
    return files
