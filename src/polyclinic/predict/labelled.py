"""The labelled cases of a site's folder, one after another."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from polyclinic.data.case_files import CaseFiles
from polyclinic.data.case_reading import read_content
from polyclinic.data.coding import coding_of
from polyclinic.data.errors import DataError, Findings, refuse
from polyclinic.data.folder import SiteFolder, read_site
from polyclinic.data.preparing import View
from polyclinic.data.readers import Array
from polyclinic.data.site_task import check_task
from polyclinic.data.tasks import Task
from polyclinic.masks import Mask, known_regions


@dataclass(frozen=True)
class LabelledCase:
    """An image as read with its full mask."""

    name: str
    patient: str
    image: Array  # C×H×W
    mask: Mask  # H×W
    spacing: tuple[float, float]
    view: View | None = None  # what the camera saw, where a file says so


@dataclass(frozen=True)
class LabelledSite:
    """A site's folder and which of its cases are meant."""

    folder: SiteFolder
    chosen: tuple[CaseFiles, ...]
    split: str  # test, …, or all

    @property
    def name(self) -> str:
        """What the site is called."""
        return self.folder.name

    @property
    def measured(self) -> bool:
        """Whether the size of all pixels is known."""
        return all(case.spacing or self.folder.toml.spacing for case in self.chosen)

    def regions(self, task: Task) -> dict[str, tuple[int, ...]]:
        """The regions that the site's masks show."""
        return known_regions(task.regions, coding_of(self.folder.toml, task)[0].masks.groups)

    def cases(self, task: Task) -> Iterator[LabelledCase]:
        """The cases, read one at a time; a DataError names a file that cannot be used."""
        coding, _ = coding_of(self.folder.toml, task)
        for files in self.chosen:
            content = read_content(files, task, (), coding)
            if content.mistakes or content.image is None or content.mask is None:
                file, text = (content.mistakes or [(files.image, "has no mask")])[0]
                place = file.relative_to(self.folder.folder)
                raise DataError([f"site {self.name}, {place}: {text}"])
            spacing = files.spacing or self.folder.toml.spacing or (1.0, 1.0)
            yield LabelledCase(
                files.name, files.patient, content.image, content.mask, spacing, content.view
            )


def labelled_site(folder: Path, task: Task, split: str | None = None) -> LabelledSite:
    """The cases with masks of one split; by default the test cases where the folder says so."""
    site = read_site(folder)
    mistakes = Findings(site.name, folder)
    mistakes.include(site.mistakes)
    check_task(site, task, mistakes, "the model for")
    mistakes.add_all(coding_of(site.toml, task)[1], folder / "site.toml")
    refuse(mistakes.lines)
    given = any(case.split for case in site.cases)
    meant = split or ("test" if given else "all")
    chosen = [case for case in site.cases if case.mask is not None and meant in ("all", case.split)]
    if not chosen:
        raise DataError([f"site {site.name}: no case with a mask is in the split {meant}"])
    return LabelledSite(site, tuple(chosen), meant)
