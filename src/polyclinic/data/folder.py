"""A site's folder on disk: which files belong to which case, and all errors.

A site folder holds `images/`, `masks/` and/or `labels/<kind>/`, one file per case and the case's
name as file name, optionally `cases.csv` (case, patient, split) and `site.toml`. Folders divided
into `train/images/`, `test/images/`, … with `weak/<kind>/` beside them are read just as well.
Kinds of label that boxes make may have their boxes instead, as `<case>.csv`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from polyclinic.data.box_files import SUFFIX, made_of_boxes
from polyclinic.data.errors import DataError, Findings, listed
from polyclinic.data.readers import SUFFIXES, datasets
from polyclinic.data.site_files import SPLITS, CaseRow, SiteToml, read_cases, read_site_toml

LABEL_FOLDERS = ("labels", "weak")


@dataclass(frozen=True)
class CaseFiles:
    """The files of one case; `split` is None where the folder does not give one."""

    name: str
    patient: str
    split: str | None
    image: Path
    mask: Path | None = None
    labels: Mapping[str, Path] = field(default_factory=dict)  # kind → file


@dataclass(frozen=True)
class SiteFolder:
    """A site as found on disk, with every mistake that shows without opening an image."""

    name: str
    folder: Path
    toml: SiteToml = field(default_factory=SiteToml)
    cases: tuple[CaseFiles, ...] = ()
    divided: bool = False  # into train/, test/, …: not our layout, so never written to
    mistakes: tuple[str, ...] = ()

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of label some case has a file for, "mask" first."""
        kinds = sorted({kind for case in self.cases for kind in case.labels})
        return ("mask", *kinds) if any(case.mask for case in self.cases) else tuple(kinds)


def find_sites(source: Path) -> list[Path]:
    """The site folders in `source` by name, or `source` alone where it is one itself."""
    if not source.is_dir():
        raise DataError([f"there is no folder {source}"])
    if _parts(source):
        return [source]
    inside = [path for path in sorted(source.iterdir()) if path.is_dir()]
    folders = [path for path in inside if not path.name.startswith((".", "_"))]
    if not folders:
        raise DataError([f"{source} holds no site: neither images/ nor folders of sites"])
    return folders


def read_site(folder: Path, name: str | None = None) -> SiteFolder:
    """What a site folder holds; its name is `name`, else that of `site.toml`, else the folder's."""
    toml, errors = read_site_toml(folder / "site.toml")
    site = SiteFolder(name or toml.name or folder.name, folder, toml)
    mistakes = Findings(site.name, folder)
    for text in errors:
        mistakes.add(text, folder / "site.toml")
    cases = [case for part, split in _parts(folder) for case in _cases(part, split, mistakes)]
    if not folder.is_dir():
        mistakes.add(f"there is no folder {folder}")
    elif not cases:
        mistakes.add(f"no images; they belong in {folder / 'images'}")
    divided = not (folder / "images").is_dir()
    listing = folder / "cases.csv"
    if divided and listing.is_file():
        mistakes.add("is not read where folders give the split; put it beside images/", listing)
    rows = None if divided else read_cases(listing, mistakes)
    cases = _distinct(cases) if rows is None else _described(cases, rows, listing, mistakes)
    _check_splits(cases, mistakes)
    return replace(site, cases=tuple(cases), divided=divided, mistakes=tuple(mistakes.lines))


def _parts(folder: Path) -> list[tuple[Path, str | None]]:
    """The folders that hold `images/`, each with the split it stands for."""
    if (folder / "images").is_dir():
        return [(folder, None)]
    return [(folder / split, split) for split in SPLITS if (folder / split / "images").is_dir()]


def _cases(part: Path, split: str | None, mistakes: Findings) -> list[CaseFiles]:
    images = _files(part / "images", mistakes)
    masks = _files(part / "masks", mistakes)
    kinds = [
        kind
        for name in LABEL_FOLDERS
        if (part / name).is_dir()
        for kind in sorted((part / name).iterdir())
        if kind.is_dir()
    ]
    labels = {kind.name: _files(kind, mistakes, boxes=made_of_boxes(kind.name)) for kind in kinds}
    for files in (masks, *labels.values()):
        for name in sorted(files.keys() - images.keys()):
            mistakes.add(f"there is no image {name} to it", files[name])
    cases = []
    for name, image in images.items():
        inside = datasets(image)
        mask = masks.get(name) or (image if "mask" in inside else None)
        own = {kind: files[name] for kind, files in labels.items() if name in files}
        within = {kind: image for kind in inside if kind not in ("image", "mask")}
        cases.append(CaseFiles(name, name, split, image, mask, {**within, **own}))
        if not (mask or within or own):
            mistakes.add("has no mask and no label", image)
    return cases


def _files(folder: Path, mistakes: Findings, *, boxes: bool = False) -> dict[str, Path]:
    """The readable files of a folder by case, in the order of their names."""
    files: dict[str, Path] = {}
    known = (*SUFFIXES, SUFFIX) if boxes else SUFFIXES
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if path.name.startswith(".") or path.name == "Thumbs.db":
            continue
        if path.suffix.lower() not in known:
            mistakes.add(f"is of no known type; known are {', '.join(known)}", path)
        elif path.stem in files:
            mistakes.add(f"is a second file of case {path.stem}", path)
        else:
            files[path.stem] = path
    return files


def _distinct(cases: Sequence[CaseFiles]) -> list[CaseFiles]:
    """The cases with their split in front of the name where train/ and test/ share names."""
    if len({case.name for case in cases}) == len(cases):
        return list(cases)
    names = [f"{case.split}-{case.name}" for case in cases]
    return [replace(case, name=name, patient=name) for case, name in zip(cases, names, strict=True)]


def _described(
    cases: Sequence[CaseFiles], rows: Mapping[str, CaseRow], listing: Path, mistakes: Findings
) -> list[CaseFiles]:
    """The cases with patient and split from `cases.csv`."""
    images = {case.name for case in cases}
    without = [name for name in rows if name not in images]
    if without:
        said = f"no image for {listed(without)} (cases are named without .png)"
        mistakes.add(said, listing)
    for case in cases:
        if case.name not in rows:
            mistakes.add("is not listed in cases.csv", case.image)
    return [
        replace(case, patient=rows[case.name].patient, split=rows[case.name].split)
        for case in cases
        if case.name in rows
    ]


def _check_splits(cases: Sequence[CaseFiles], mistakes: Findings) -> None:
    """A given split is given to all cases, has train and test cases, and divides no patient."""
    given = [case for case in cases if case.split]
    if not given:
        return
    without = [case.name for case in cases if not case.split]
    if without:
        mistakes.add(f"no split for {listed(without)}; give one to all cases or to none")
    for split in ("train", "test"):
        if all(case.split != split for case in given):
            mistakes.add(f"its split has no {split} case")
    splits: dict[str, set[str | None]] = {}
    for case in given:
        splits.setdefault(case.patient, set()).add(case.split)
    for patient, found in splits.items():
        if len(found) > 1:
            places = " and ".join(split for split in SPLITS if split in found)
            mistakes.add(f"patient {patient} is in {places}; a patient belongs to one split")
