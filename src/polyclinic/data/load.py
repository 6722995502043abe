"""All sites of a study: checked, read once and brought to the task's resolution."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from polyclinic.config import DataSettings, SiteSettings
from polyclinic.data.case_reading import Content, normalisation, read_contents
from polyclinic.data.cases import Cases, SiteData
from polyclinic.data.coding import annotated, coding_of
from polyclinic.data.errors import Findings, refuse
from polyclinic.data.folder import SiteFolder, read_site
from polyclinic.data.labels import check_kind, check_labels, made_label
from polyclinic.data.proposals import note_contents
from polyclinic.data.readers import Array
from polyclinic.data.site_files import SPLITS
from polyclinic.data.sources import Source, sources_of
from polyclinic.data.splits import Splits, splits_of
from polyclinic.data.splitting import SplitRule
from polyclinic.data.synthetic import draw_site
from polyclinic.data.tasks import Task
from polyclinic.masks import UNLABELLED, Groups, Mask, group_names, merged


def load_federation(
    task: Task,
    data: DataSettings,
    sites: Sequence[SiteSettings] = (),
    *,
    labels: str | None = None,
    splits_folder: Path | None = None,
) -> list[SiteData]:
    """The sites that the study lists, or all of its source, where a site.toml names its labels.

    With `labels` all of them train on these, whatever their own kind.
    Raises a DataError with every mistake of every site. A split is cut only where there is none
    yet, and kept in `splits_folder`; the sites' folders are only read.
    """
    loaded = [
        _narrowed(_load(source, task, data, splits_folder), source.annotates, task)
        for source in sources_of(task, data, sites, labels)
    ]
    names = Counter(site.name for site in loaded)
    twice = [
        f"site {name}: {names[name]} sites have this name" for name in names if names[name] > 1
    ]
    refuse([*twice, *(line for site in loaded for line in site.mistakes)])
    for site in loaded:
        site.splits.write()
    return [_site_data(site, task, data.seed) for site in loaded]


@dataclass(frozen=True)
class _Case:
    name: str
    patient: str
    image: Array  # C×R×R
    mask: Mask | None
    own: Mask | None = None  # its own label of the site's kind
    spacing: tuple[float, float] = (1.0, 1.0)


@dataclass(frozen=True)
class _Loaded:
    name: str
    kind: str
    cases: tuple[_Case, ...]
    splits: Splits
    mistakes: tuple[str, ...]
    made: bool  # its labels are made from its masks, because it has none of this kind
    label_groups: Groups = ()
    mask_groups: Groups = ()


def _load(source: Source, task: Task, data: DataSettings, splits_folder: Path | None) -> _Loaded:
    if source.folder is None:
        return _draw(source, task, data)
    return _read(source.folder, source, task, data, splits_folder)


def _draw(source: Source, task: Task, data: DataSettings) -> _Loaded:
    name, kind = source.name or "", source.kind or "mask"
    mistakes = Findings(name, Path())
    check_kind(kind, ("mask",), mistakes)
    if data.folds:
        mistakes.add("a synthetic site has a split of its own; set folds to 0")
    drawn = draw_site(task.name, name, resolution=task.resolution, seed=data.seed, size=data.size)
    cases = map(_Case, drawn.names, drawn.patients, drawn.images, drawn.masks)
    splits = Splits(dict(zip(drawn.names, drawn.splits, strict=True)))
    return _Loaded(name, kind, tuple(cases), splits, tuple(mistakes.lines), kind != "mask")


def _read(
    folder: Path, source: Source, task: Task, data: DataSettings, splits_folder: Path | None
) -> _Loaded:
    site = read_site(folder, source.name)
    kind = source.kind or site.toml.labels or "mask"
    mistakes = Findings(site.name, folder)
    mistakes.include(site.mistakes)
    if site.toml.task not in (None, task.name):
        mistakes.add(f"is for the task {site.toml.task}, the study for {task.name}")
    splits = Splits({})
    # With cases missing, what would be said about the split is only confusing.
    if not site.mistakes:
        rule = SplitRule(data.split, data.folds, data.fold, data.seed)
        splits = splits_of(site, rule, splits_folder, mistakes)
        check_labels(site, kind, splits.of, mistakes)
    coding, errors = coding_of(site.toml, task)
    for text in errors:
        mistakes.add(text, folder / "site.toml")
    contents = read_contents(site.cases, task, (kind,), task.resolution, coding)
    _note(contents, kind, task, mistakes)
    made = kind not in ("mask", *site.kinds)
    own = coding.labels.groups if kind != "mask" and not made else coding.masks.groups
    cases = (
        _case(content, content.image, kind, site, task)
        for content in contents
        if content.image is not None
    )
    lines = tuple(mistakes.lines)
    groups = (own, coding.masks.groups)
    return _Loaded(site.name, kind, tuple(cases), splits, lines, made, *groups)


def _narrowed(site: _Loaded, names: tuple[str, ...], task: Task) -> _Loaded:
    """The site with nothing annotated but the classes and regions that the study names."""
    errors: list[str] = []
    groups = annotated(names, task, errors)
    told = {site.label_groups, site.mask_groups}
    if any(groups[n] != groups[first] for own in told for n, first in enumerate(own) if groups):
        tells = " · ".join(group_names(task.classes, site.mask_groups).values())
        errors.append(f"annotates {', '.join(names)} in the study, but tells apart only {tells}")
    pixels = [each for case in site.cases for each in (case.mask, case.own) if each is not None]
    if (
        groups
        and pixels
        and not any(merged(each, groups)[each != UNLABELLED].any() for each in pixels)
    ):
        errors.append(f"has no pixel of {', '.join(names)}, which it annotates in the study")
    if not groups or errors:
        lines = (f"site {site.name}: {text}" for text in errors)
        return replace(site, mistakes=(*site.mistakes, *lines))
    cases = [
        replace(case, mask=_merged(case.mask, groups), own=_merged(case.own, groups))
        for case in site.cases
    ]
    return replace(site, cases=tuple(cases), label_groups=groups, mask_groups=groups)


def _merged(mask: Mask | None, groups: Groups) -> Mask | None:
    return None if mask is None else merged(mask, groups)


def _note(contents: Sequence[Content], kind: str, task: Task, mistakes: Findings) -> None:
    note_contents(contents, task, mistakes)
    for content in contents:
        label = content.labels.get(kind)
        if label is not None and not content.mistakes and (label == UNLABELLED).all():
            file = content.case.labels[kind]
            mistakes.add(f"no labelled pixel is left at {task.resolution}²", file)


def _case(content: Content, image: Array, kind: str, site: SiteFolder, task: Task) -> _Case:
    spacing = (1.0, 1.0)
    if site.toml.spacing:
        (high, wide), (rows, columns) = content.size, site.toml.spacing
        spacing = (rows * high / task.resolution, columns * wide / task.resolution)
    own = content.labels.get(kind)
    return _Case(content.case.name, content.case.patient, image, content.mask, own, spacing)


def _site_data(site: _Loaded, task: Task, seed: int) -> SiteData:
    parts = {
        split: [case for case in site.cases if site.splits.of[case.name] == split]
        for split in SPLITS
    }
    return SiteData(
        name=site.name,
        kind=site.kind,
        groups=(site.label_groups,) if site.label_groups else (),
        mask_groups=site.mask_groups,
        **{split: _cases(cases, site, task, seed) for split, cases in parts.items()},
    )


def _cases(cases: Sequence[_Case], site: _Loaded, task: Task, seed: int) -> Cases:
    side = task.resolution
    unknown = np.full((side, side), UNLABELLED, dtype=np.uint8)
    masks = [unknown if case.mask is None else case.mask for case in cases]
    labels = [_label(case, mask, site, task, seed) for case, mask in zip(cases, masks, strict=True)]
    images = _stacked([case.image for case in cases], (task.channels, side, side))
    offset, scale = normalisation(images, task.normalisation)
    return Cases(
        names=tuple(case.name for case in cases),
        patients=tuple(case.patient for case in cases),
        images=torch.from_numpy(images),
        labels=torch.from_numpy(_stacked(labels, (side, side))),
        masks=torch.from_numpy(_stacked(masks, (side, side))),
        offset=torch.from_numpy(offset),
        scale=torch.from_numpy(scale),
        spacing=torch.tensor([case.spacing for case in cases], dtype=torch.float64).view(-1, 2),
    )


def _label(case: _Case, mask: Mask, site: _Loaded, task: Task, seed: int) -> Mask:
    if site.kind == "mask":
        return mask
    if site.made:
        return made_label(mask, site.kind, task, seed=seed, site=site.name, case=case.name)
    return np.full_like(mask, UNLABELLED) if case.own is None else case.own


def _stacked(arrays: Sequence[Array], shape: tuple[int, ...]) -> Array:
    return np.stack(arrays) if arrays else np.empty((0, *shape), dtype=np.uint8)
