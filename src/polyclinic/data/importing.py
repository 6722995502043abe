"""Turns files in any layout that is understood into site folders of our own."""

import csv
import shutil
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import tomli_w
from PIL import Image

from polyclinic.config.printing import plain
from polyclinic.data.case_files import NO_LABEL, CaseFiles
from polyclinic.data.case_reading import read_contents
from polyclinic.data.check import check_folder
from polyclinic.data.coding import coding_of
from polyclinic.data.contact_sheet import contact_sheet
from polyclinic.data.errors import DataError, Findings, refuse
from polyclinic.data.folder import SiteFolder
from polyclinic.data.formats.instances import is_dicom
from polyclinic.data.formats.nifti import is_nifti, stem, write_nifti
from polyclinic.data.formats.store import kept_volume
from polyclinic.data.formats.volume import Array, Volume
from polyclinic.data.import_choices import EXAMPLES
from polyclinic.data.nnunet import has_channels
from polyclinic.data.proposals import note_contents
from polyclinic.data.site_files import COLUMNS
from polyclinic.data.tasks import TASKS, Task
from polyclinic.data.understanding import Understood

Spacing = tuple[float, float]
Agree = Callable[[], bool]  # asked when the contact sheet is drawn and nothing is written yet


def import_sites(
    understood: Understood,
    destination: Path,
    task: Task,
    *,
    sheet: Path | None = None,
    agree: Agree = lambda: True,
    leave_out: bool = False,
) -> tuple[list[Path], list[str]]:
    """The new site folders, and a line for each case that has no mask and no label.

    The source is only read, and checked completely first; with `leave_out` cases with mistakes are
    left out, else any mistake refuses all. Sites appear in `destination` when the last file of the
    last one is written and `agree` says so; a name taken there is refused.
    """
    if destination.resolve().is_relative_to(understood.source.resolve()):
        text = f"{destination} lies within {understood.source}, which is only read"
        refuse([f"{text}; choose another place"])
    usable = [_usable(site, task, leave_out=leave_out) for site in understood.sites]
    sites = [site for site, _, _ in usable]
    taken = [
        f"site {site.name}: {destination / site.name} is there already; move it away first"
        for site in sites
        if (destination / site.name).exists()
    ]
    refuse([*taken, *(understood.told(line) for _, mistakes, _ in usable for line in mistakes)])
    destination.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=".import-", dir=destination) as unfinished:
        folders = [Path(unfinished, site.name) for site in sites]
        left = [understood.told(line) for _, _, lines in usable for line in lines]
        for site, folder in zip(sites, folders, strict=True):
            left += _copy(site, folder, task)
        refuse(check_folder(Path(unfinished), task).mistakes)
        if sheet is not None:
            contact_sheet(Path(unfinished), task, sheet)
        if not agree():
            return [], left
        return [folder.rename(destination / folder.name) for folder in folders], left


def _usable(
    site: SiteFolder, task: Task, *, leave_out: bool
) -> tuple[SiteFolder, list[str], list[str]]:
    """The site with the cases to import, what forbids importing it, and what is left out."""
    mistakes = Findings(site.name, site.folder)
    bare = [line for line in site.mistakes if line.endswith(NO_LABEL)]
    mistakes.include([line for line in site.mistakes if line not in bare])
    cases = [case for case in site.cases if case.mask or case.labels]
    broken = set()
    for case in cases:
        if has_channels(case.image):
            mistakes.add("has channels in files of their own; use the dataset as it is", case.image)
            broken.add(case.volume or case.name)
    coding, errors = coding_of(site.toml, task)
    for text in errors:
        mistakes.add(f"site.toml: {text}")
    contents = read_contents(cases, task, site.kinds, coding)
    note_contents(contents, task, mistakes)
    broken |= {each.case.volume or each.case.name for each in contents if each.mistakes}
    kept = [case for case in cases if (case.volume or case.name) not in broken]
    if any(each.seen for each in contents):
        mistakes.add(f'or say it here, such as --values "{EXAMPLES["values"]}" or --colours')
    if not kept:
        if not broken:
            mistakes.add("there is no case with a mask or a label")
        return site, [*mistakes.lines, *bare], []
    # What concerns the whole site cannot be left out.
    whole = [line for line in mistakes.lines if line.startswith(f"site {site.name}: ")]
    forbids = whole if leave_out else mistakes.lines
    left = [*bare, *(line for line in mistakes.lines if line not in forbids)]
    return replace(site, cases=tuple(kept)), forbids, left


def _copy(site: SiteFolder, folder: Path, task: Task) -> list[str]:
    """Write the site; gives what cannot be written."""
    spacings: set[Spacing | None] = set()
    for name, cases in site.by_file.items():
        if cases[0].volume and is_dicom(cases[0].image):
            spacings |= _convert_volume(name, cases, folder)
            continue
        _copy_file(cases[0].image, folder / "images", name)
        for case in cases:
            _copy_annotations(case, folder)
    rows = [(case.name, case.patient, case.split or "") for case in site.cases]
    with (folder / "cases.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([COLUMNS, *rows])
    common = spacings.pop() if len(spacings) == 1 else None
    (folder / "site.toml").write_text(_about(site, task, common), encoding="utf-8")
    if task.name not in TASKS:  # so that the folder says what its masks mean
        text = tomli_w.dumps(plain(task.settings))
        (folder / _named(task)).write_text(text, encoding="utf-8")
    differ = f"site {site.name}: its pictures' pixels differ in size, which a site.toml cannot say"
    return [differ] if spacings else []


def _copy_annotations(case: CaseFiles, folder: Path) -> None:
    for part, original in _annotations(case):
        # What lies within an HDF5 image file has gone with it.
        if original != case.image:
            whole = original in case.slices
            _copy_file(original, folder / part, (case.volume if whole else None) or case.name)


def _named(task: Task) -> str:
    """What site.toml calls the task: its name, or the file that lies beside it."""
    return task.name if task.name in TASKS else f"{task.name}.task.toml"


def _about(site: SiteFolder, task: Task, spacing: Spacing | None) -> str:
    """What the source's own site.toml says, and what is known now."""
    own = site.folder / "site.toml"
    said: dict[str, Any] = tomllib.loads(own.read_text(encoding="utf-8")) if own.is_file() else {}
    # Of DICOM, which is not copied, both have been followed.
    rest = {key: said[key] for key in said if key not in ("modality", "stored_window")}
    known = {"name": site.name, "task": _named(task), **_axis(site), **_codes(site)}
    if spacing and "spacing" not in rest:
        known["spacing"] = list(spacing)
    return tomli_w.dumps({**rest, **known})


def _codes(site: SiteFolder) -> dict[str, Any]:
    """What values or colours stand for, as site.toml has it."""
    masks = site.toml.masks
    tables: dict[str, Mapping[Any, tuple[str, ...]]]
    tables = {"values": masks.values, "colours": masks.colours}
    return {
        key: {str(code): names[0] if len(names) == 1 else names for code, names in table.items()}
        for key, table in tables.items()
        if table
    }


def _axis(site: SiteFolder) -> dict[str, Any]:
    series = any(case.volume and is_dicom(case.image) for case in site.cases)
    return {"axis": site.toml.axis or "acquired"} if series else {}


def _copy_file(file: Path, folder: Path, case: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{case}{_ending(file)}"
    if not target.exists():
        shutil.copyfile(file, target)


def _ending(file: Path) -> str:
    """What follows the file's name: `.png`, `.nii.gz`."""
    return file.name[len(stem(file)) :] if is_nifti(file) else file.suffix


def _convert_volume(name: str, cases: Sequence[CaseFiles], folder: Path) -> set[Spacing | None]:
    """Write a volume, its mask and its labels; gives the spacing that these files cannot say."""
    first = cases[0]
    volume = kept_volume(first.slices[first.image][0])
    if volume.affine is not None and volume.voxels.shape[1] > 1:
        raise DataError([f"{first.image}: volumes in colours cannot be converted"])
    _write(name, folder / "images", volume, volume.voxels)
    for part, file in _annotations(first):
        if file in first.slices:
            _write(name, folder / part, volume, kept_volume(first.slices[file][0]).voxels)
    for case in cases:
        for part, file in _annotations(case):
            if file not in case.slices:
                _copy_file(file, folder / part, case.name)
    return {volume.spacing} if volume.affine is None else set()


def _annotations(case: CaseFiles) -> list[tuple[str, Path]]:
    named = {"masks": case.mask, "views": case.view}
    own = [(part, file) for part, file in named.items() if file]
    return [*own, *((f"labels/{kind}", file) for kind, file in case.labels.items())]


def _write(name: str, folder: Path, volume: Volume, voxels: Array) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if volume.affine is None:
        for number, frame in enumerate(voxels):
            own = f"{name}-{number:03d}" if len(voxels) > 1 else name
            _write_picture(folder / own, frame)
        return
    # Frame, row and column, of which NIfTI has the last first.
    stored = volume.restored(voxels[:, 0]).transpose(2, 1, 0)
    affine = volume.affine[:, [2, 1, 0, 3]]
    write_nifti(folder / f"{name}.nii.gz", np.ascontiguousarray(stored), affine)


def _write_picture(path: Path, frame: Array) -> None:
    """A PNG where 8 bits are enough, else the numbers themselves."""
    if frame.dtype != np.uint8:
        np.save(path.with_name(f"{path.name}.npy"), frame)
        return
    pixels = frame[0] if len(frame) == 1 else frame.transpose(1, 2, 0)
    Image.fromarray(np.ascontiguousarray(pixels)).save(path.with_name(f"{path.name}.png"))
