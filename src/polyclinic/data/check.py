"""Everything about a folder of sites before anyone trains on it: errors, warnings."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from polyclinic.data.case_files import CaseFiles
from polyclinic.data.case_reading import Content, read_contents
from polyclinic.data.coding import Coding, coding_of
from polyclinic.data.errors import DataError, Findings, listed
from polyclinic.data.folder import SiteFolder, find_sites, read_site
from polyclinic.data.labels import check_labels
from polyclinic.data.proposals import note_contents
from polyclinic.data.site_files import SPLITS
from polyclinic.data.site_task import check_task, own_task, prepared_otherwise
from polyclinic.data.splits import check_kept
from polyclinic.data.tasks import TASKS, Task, as_at_site
from polyclinic.masks import UNLABELLED

ABSENT = (
    "where the site does not annotate it, site.toml has to say so (docs/data.md, Partial masks)"
)
PAIRS = 5  # equal images that are told one by one


@dataclass(frozen=True)
class SiteSummary:
    """A line of the table: what one site has."""

    name: str
    cases: int
    patients: int
    splits: Mapping[str, int]  # split → cases; empty where nothing is divided yet
    smallest: tuple[int, int]  # rows and columns of the image with the fewest pixels
    largest: tuple[int, int]
    shares: Mapping[str, float]  # class → mean share of a mask's pixels; empty without masks
    kinds: Mapping[str, int]  # "mask" and kinds of label → cases that have one
    otherwise: str  # how its task file would prepare images, where that does not count


@dataclass(frozen=True)
class Summary:
    """What there is; mistakes forbid training, warnings do not."""

    task: Task
    sites: tuple[SiteSummary, ...]
    mistakes: tuple[str, ...]
    warnings: tuple[str, ...]


class NoTaskError(DataError):
    """Nobody says for which task to check: no fault of the images."""


def check_folder(
    folder: Path,
    task: Task | None = None,
    tasks: Mapping[str, Task] = TASKS,
    volumes: Path | None = None,
) -> Summary:
    """Read every file of every site, by default for that one of `tasks` their site.toml names.

    Volumes are kept in the folder `volumes`, where there is one.
    """
    sites = [read_site(each, volumes=volumes) for each in find_sites(folder)]
    task = task or _named_task(sites, tasks)
    summaries, mistakes, warnings = [], [], []
    twins: dict[bytes, list[tuple[str, CaseFiles]]] = defaultdict(list)
    for site in sites:
        coding, errors = coding_of(site.toml, task)
        contents = read_contents(site.cases, task, site.kinds, coding=coding)
        found, splits = _mistakes(site, contents, task, errors)
        mistakes += found
        otherwise = prepared_otherwise(site, task, tasks)
        summaries.append(_summary(site, contents, coding.masks, splits, otherwise))
        warnings += _warnings(site, contents, summaries[-1])
        for content in contents:
            twins[content.digest()].append((site.name, content.case))
    warnings += _equal_images([seen for digest, seen in twins.items() if digest])
    return Summary(task, tuple(summaries), tuple(mistakes), tuple(warnings))


def _named_task(sites: Sequence[SiteFolder], tasks: Mapping[str, Task]) -> Task:
    try:
        found = [task for site in sites if (task := own_task(site, tasks))]
    except DataError as error:
        raise NoTaskError([f"site.toml: {text}" for text in error.mistakes]) from error
    if found and all(task == found[0] for task in found):
        return found[0]
    names = ", ".join(dict.fromkeys(task.name for task in found))
    told = f"the sites name {names}" if found else "no site.toml names one"
    known = f"{', '.join(tasks)}, or a file such as vessels.task.toml"
    raise NoTaskError([f"say for which task to check ({known}): {told}"])


def _summary(
    site: SiteFolder,
    contents: Sequence[Content],
    coding: Coding,
    splits: Mapping[str, str],
    otherwise: str,
) -> SiteSummary:
    masks = [content.mask for content in contents if content.mask is not None]
    shares = np.array([np.bincount(mask.ravel(), minlength=256) / mask.size for mask in masks])
    sizes = [content.size for content in contents if content.image is not None] or [(0, 0)]
    kinds = Counter(kind for case in site.cases for kind in case.labels)
    counts = Counter(splits.values())
    with_mask = sum(case.mask is not None for case in site.cases)
    return SiteSummary(
        name=site.name,
        cases=len(site.cases),
        patients=len({case.patient for case in site.cases}),
        splits={split: counts[split] for split in SPLITS if counts[split]},
        smallest=min(sizes, key=np.prod),
        largest=max(sizes, key=np.prod),
        shares={
            name: float(shares[:, number].mean())
            for number, name in coding.names.items()
            if masks and number != UNLABELLED
        },
        kinds={"mask": with_mask, **dict(sorted(kinds.items()))},
        otherwise=otherwise,
    )


def _mistakes(
    site: SiteFolder, contents: Sequence[Content], task: Task, errors: Sequence[str]
) -> tuple[list[str], dict[str, str]]:
    """The errors, and each case's split as kept or given."""
    mistakes = Findings(site.name, site.folder)
    mistakes.include(site.mistakes)
    given = {case.name: case.split for case in site.cases if case.split}
    complete = "val" in given.values()
    splits = given if complete else check_kept(site, mistakes) or given
    check_task(site, task, mistakes, "not")
    wrong: list[str] = []
    as_at_site(task, site.toml.preparation, wrong)
    mistakes.add_all(wrong, site.folder / "site.toml")
    if site.toml.labels:
        check_labels(site, site.toml.labels, splits, mistakes)
    mistakes.add_all(errors, site.folder / "site.toml")
    note_contents(contents, task, mistakes)
    return mistakes.lines, splits


def _warnings(site: SiteFolder, contents: Sequence[Content], summary: SiteSummary) -> list[str]:
    warnings = Findings(site.name, site.folder)
    warnings.include(site.warnings)
    if summary.otherwise:
        warnings.add(summary.otherwise, site.folder / "site.toml")
    for content in contents:
        for file, text in content.warnings:
            warnings.add(text, file)
    without = [case.name for case in site.cases if not case.mask]
    if without:
        warnings.add(f"cannot be scored without a mask: {listed(without)}")
    understood = not any("mask" in content.seen for content in contents)
    for name, share in summary.shares.items():
        if share == 0 and understood:
            warnings.add(f"no mask has a pixel of {name}; {ABSENT}")
    return warnings.lines


def _equal_images(groups: Sequence[Sequence[tuple[str, CaseFiles]]]) -> list[str]:
    """Images that occur twice under different patients: they may train and test at once."""
    lines = [
        "the same image: "
        + "; ".join(
            f"site {site}, {case.name}" + (f" ({case.split})" if case.split else "")
            for site, case in group
        )
        for group in groups
        if len({(site, case.patient) for site, case in group}) > 1
    ]
    rest = len(lines) - PAIRS
    return [*lines[:PAIRS], f"the same image: {rest} more of this"] if rest > 0 else lines
