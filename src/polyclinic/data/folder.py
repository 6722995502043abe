"""A site's folder on disk: which files belong to which case, and all errors.

A site folder holds `images/`, `masks/` and/or `labels/<kind>/`, one file per case and the case's
name as file name, optionally `cases.csv` (case, patient, split) and `site.toml`. Folders divided
into `train/images/`, `test/images/`, … with `weak/<kind>/` beside them are read just as well.
Kinds of label that boxes make may have their boxes instead, as `<case>.csv`. A file of `images/`
may also be a volume (NIfTI, or a DICOM series): then each of its slices is a case. `views/` holds
what the camera saw, where that is less than the image: 0 is out of view, anything else within.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from polyclinic.data.case_files import CaseFiles, cases_of, parts_of
from polyclinic.data.errors import DataError, Findings, listed
from polyclinic.data.formats.instances import is_dicom
from polyclinic.data.formats.store import SALT, Store
from polyclinic.data.nnunet import check_description, is_nnunet
from polyclinic.data.site_files import SPLITS, CaseRow, SiteToml, read_cases, read_site_toml


@dataclass(frozen=True)
class SiteFolder:
    """A site as found on disk, with every mistake that shows without opening a picture."""

    name: str
    folder: Path
    toml: SiteToml = field(default_factory=SiteToml)
    cases: tuple[CaseFiles, ...] = ()
    divided: bool = False  # into train/, test/, …: not our layout, so never written to
    mistakes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of label some case has a file for, "mask" first."""
        kinds = sorted({kind for case in self.cases for kind in case.labels})
        return ("mask", *kinds) if any(case.mask for case in self.cases) else tuple(kinds)

    @property
    def by_file(self) -> dict[str, list[CaseFiles]]:
        """The cases of each file by its name: all slices of a volume, or one picture."""
        files: dict[str, list[CaseFiles]] = {}
        for case in self.cases:
            files.setdefault(case.volume or case.name, []).append(case)
        return files


def find_sites(source: Path) -> list[Path]:
    """The site folders in `source` by name, or `source` alone where it is one itself."""
    if not source.is_dir():
        raise DataError([f"there is no folder {source}"])
    if parts_of(source):
        return [source]
    inside = [path for path in sorted(source.iterdir()) if path.is_dir()]
    folders = [path for path in inside if not path.name.startswith((".", "_"))]
    if not folders:
        raise DataError([f"{source} holds no site: neither images/ nor folders of sites"])
    return folders


def read_site(folder: Path, name: str | None = None, volumes: Path | None = None) -> SiteFolder:
    """What a site folder holds; its name is `name`, else that of `site.toml`, else the folder's.

    Volumes are read into the site's part of the folder `volumes`, or of a passing one.
    """
    toml, errors = read_site_toml(folder / "site.toml")
    site = SiteFolder(name or toml.name or folder.name, folder, toml)
    mistakes, warnings = Findings(site.name, folder), Findings(site.name, folder)
    mistakes.add_all(errors, folder / "site.toml")
    store = Store(site.name, folder, volumes)
    cases = []
    for part in parts_of(folder):
        cases += cases_of(part, toml, store, mistakes, warnings)
    if is_nnunet(folder):
        check_description(folder, mistakes)
        if (folder / "imagesTs").is_dir() and not (folder / "labelsTs").is_dir():
            warnings.add("is left out, because there is no labelsTs", folder / "imagesTs")
    if not folder.is_dir():
        mistakes.add(f"there is no folder {folder}")
    elif not cases and len(mistakes.lines) == len(errors):
        mistakes.add(f"no images; they belong in {folder / 'images'}")
    divided = not (folder / "images").is_dir()
    listing = folder / "cases.csv"
    if divided and listing.is_file():
        mistakes.add("is not read where folders give the split; put it beside images/", listing)
    rows = None if divided else read_cases(listing, mistakes)
    cases = _distinct(cases) if rows is None else _described(cases, rows, listing, mistakes)
    _check_splits(cases, mistakes)
    return replace(
        site,
        cases=tuple(cases),
        divided=divided,
        mistakes=tuple(mistakes.lines),
        warnings=tuple(warnings.lines),
    )


def keep_salt(site: SiteFolder, volumes: Path | None) -> None:
    """Put the salt of names into the site's folder, because a file with such names went there."""
    file = site.folder / SALT
    if not file.exists() and any(case.volume and is_dicom(case.image) for case in site.cases):
        salt = Store(site.name, site.folder, volumes).salt().hex()
        file.touch(mode=0o600)
        file.write_text(f"{salt}\n")


def _distinct(cases: Sequence[CaseFiles]) -> list[CaseFiles]:
    """The cases with their split in front of the name where train/ and test/ share names."""
    if len({case.name for case in cases}) == len(cases) or not all(case.split for case in cases):
        return list(cases)
    return [_with_split(case) for case in cases]


def _with_split(case: CaseFiles) -> CaseFiles:
    # Who is called by a hash is the same patient everywhere.
    own = case.patient in (case.name, case.volume)
    return replace(
        case,
        name=f"{case.split}-{case.name}",
        patient=f"{case.split}-{case.patient}" if own else case.patient,
        volume=case.volume and f"{case.split}-{case.volume}",
    )


def _described(
    cases: Sequence[CaseFiles], rows: Mapping[str, CaseRow], listing: Path, mistakes: Findings
) -> list[CaseFiles]:
    """The cases with patient and split from `cases.csv`."""
    known = {name for case in cases for name in (case.name, case.volume)}
    without = [name for name in rows if name not in known]
    if without:
        said = f"no image for {listed(without)} (cases are named without .png)"
        mistakes.add(said, listing)
    described = []
    for case in cases:
        # A row may be about all slices of a volume.
        row = rows.get(case.name) or rows.get(case.volume or "")
        if row is None:
            mistakes.add("is not listed in cases.csv", case.image)
        else:
            described.append(replace(case, patient=row.patient, split=row.split))
    return described


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
