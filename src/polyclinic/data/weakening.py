"""Weak labels for a whole site, made from its masks and written into its folder."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image

from polyclinic.config.mistakes import did_you_mean
from polyclinic.data.case_files import CaseFiles
from polyclinic.data.case_reading import read_content
from polyclinic.data.coding import coding_of
from polyclinic.data.contact_sheet import contact_sheet
from polyclinic.data.errors import DataError, Findings, listed, refuse
from polyclinic.data.folder import SiteFolder, keep_salt, read_site
from polyclinic.data.labels import made_label
from polyclinic.data.proposals import note_contents
from polyclinic.data.site_task import own_task
from polyclinic.data.tasks import TASKS, Task
from polyclinic.masks import Mask
from polyclinic.weak import KINDS

OnCase = Callable[[str, int, int], None]  # the case's name, how many are done, how many there are


def weaken_site(
    folder: Path,
    kind: str,
    *,
    seed: int = 0,
    task: Task | None = None,
    tasks: Mapping[str, Task] = TASKS,
    on_case: OnCase | None = None,
    volumes: Path | None = None,
) -> Path:
    """Write `labels/<kind>/<case>.png` for every mask of a site, and give their contact sheet.

    The task is by default that one of `tasks` which site.toml names. All labels appear at once when
    all are made; a site that has labels of this kind keeps them, and a DataError says so.
    """
    site = read_site(folder, volumes=volumes)
    task = task or _named_task(site, tasks)
    masks = _read_masks(site, kind, task)
    parts = list(dict.fromkeys(_part(case, site) for case, _ in masks))
    with TemporaryDirectory(prefix=".labels-", dir=folder) as unfinished:
        places = {part: Path(unfinished, str(number)) for number, part in enumerate(parts)}
        for place in places.values():
            place.mkdir()
        for done, (case, mask) in enumerate(masks, 1):
            label = made_label(mask, kind, task, seed=seed, site=site.name, case=case.name)
            name = case.name if case.volume else case.image.stem
            Image.fromarray(label).save(places[_part(case, site)] / f"{name}.png")
            if on_case:
                on_case(case.name, done, len(masks))
        for part, place in places.items():
            (part / "labels").mkdir(exist_ok=True)
            place.replace(part / "labels" / kind)
    keep_salt(site, volumes)
    sheet = folder / f"labels-{kind}.png"
    contact_sheet(folder, task, sheet, kind=kind, volumes=volumes)
    return sheet


def _named_task(site: SiteFolder, tasks: Mapping[str, Task]) -> Task:
    task = own_task(site, tasks)
    if task is None:
        names = ", ".join(tasks)
        raise DataError([f"say for which task to make labels ({names}): no site.toml names one"])
    return task


def _read_masks(site: SiteFolder, kind: str, task: Task) -> Sequence[tuple[CaseFiles, Mask]]:
    """The masks of all cases that have one; all errors raise at once."""
    mistakes = Findings(site.name, site.folder)
    mistakes.include(site.mistakes)
    if kind not in KINDS:
        mistakes.add(f'no kind "{kind}"; there are {", ".join(KINDS)}{did_you_mean(kind, KINDS)}')
    there = [case.name for case in site.cases if kind in case.labels]
    if there:
        mistakes.add(f"has {kind} labels for {listed(there)}; move them away to have new ones")
    coding, errors = coding_of(site.toml, task)
    mistakes.add_all(errors, site.folder / "site.toml")
    contents = [read_content(case, task, (), coding) for case in site.cases if case.mask]
    if site.cases and not contents:
        mistakes.add("has no masks to make labels from")
    note_contents(contents, task, mistakes)
    if site.cases and not os.access(site.folder, os.W_OK):
        mistakes.add("its folder must not be written to")
    refuse(mistakes.lines)
    return [
        (content.case, content.in_view(content.mask))
        for content in contents
        if content.mask is not None
    ]


def _part(case: CaseFiles, site: SiteFolder) -> Path:
    """The folder that holds the case's images/: the site's, or its train/ or test/."""
    return site.folder / case.split if site.divided and case.split else site.folder
