"""All sites of a study: checked, read once and brought to the task's resolution."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from numpy.typing import DTypeLike

from polyclinic.config import DataSettings, SiteSettings
from polyclinic.data.aside import Aside
from polyclinic.data.case_reading import Content, read_contents
from polyclinic.data.cases import Cases, SiteData
from polyclinic.data.coding import coding_of
from polyclinic.data.errors import Findings, refuse
from polyclinic.data.folder import SiteFolder, read_site
from polyclinic.data.formats.reading import files_below
from polyclinic.data.formats.store import FOLDER as VOLUMES
from polyclinic.data.formats.store import Store
from polyclinic.data.labels import check_kind, check_labels, made_label
from polyclinic.data.loaded import LoadedCase, LoadedSite, narrowed
from polyclinic.data.prepared import keep_site, kept_site
from polyclinic.data.preparing import Prepared, View, prepare
from polyclinic.data.proposals import note_contents
from polyclinic.data.readers import Array
from polyclinic.data.site_files import SPLITS
from polyclinic.data.site_task import check_task
from polyclinic.data.sources import Source, sources_of
from polyclinic.data.splits import Splits, drawn_splits, splits_of
from polyclinic.data.splitting import SplitRule
from polyclinic.data.synthetic import draw_site
from polyclinic.data.tasks import Task, as_at_site
from polyclinic.masks import UNLABELLED, Mask

PREPARED = 2  # the way in which files are prepared: what an older one kept is made anew


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
    yet, and kept in `splits_folder`, volumes beside it; the sites' folders are only read.
    """
    loaded = [
        narrowed(_load(source, task, data, splits_folder), source.annotates, task)
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


def _load(source: Source, task: Task, data: DataSettings, splits_folder: Path | None) -> LoadedSite:
    if source.folder is None:
        return _draw(source, task, data)
    return _read(source.folder, source, task, data, splits_folder)


def _rule(data: DataSettings) -> SplitRule:
    recut, in_order = data.given == "recut", data.cut == "in_order"
    return SplitRule(data.split, data.folds, data.fold or 0, data.seed, recut, in_order)


def _draw(source: Source, task: Task, data: DataSettings) -> LoadedSite:
    name, kind = source.name or "", source.kind or "mask"
    mistakes = Findings(name, Path())
    check_kind(kind, ("mask",), mistakes)
    wrong: list[str] = []
    own = as_at_site(task, source.preparation, wrong)
    mistakes.add_all(wrong)
    drawn = draw_site(
        task.name,
        name,
        resolution=task.resolution,
        seed=data.seed,
        size=data.size,
        form=data.federation,
    )
    if drawn.images.shape[1] != task.channels or drawn.masks.max() >= len(task.classes):
        mistakes.add(
            f"is drawn with {drawn.images.shape[1]} channels and {drawn.masks.max() + 1} classes, "
            f"but the task {task.name} is changed to {task.channels} and {len(task.classes)}"
        )
    images = [prepare(image, own) for image in drawn.images]
    masks = [
        image.geometry.mask_there(mask) for image, mask in zip(images, drawn.masks, strict=True)
    ]
    cases = map(LoadedCase, drawn.names, drawn.patients, images, masks)
    splits = Splits(drawn_splits(drawn, _rule(data), mistakes))
    return LoadedSite(name, kind, tuple(cases), splits, tuple(mistakes.lines), kind != "mask")


def _read(
    folder: Path, source: Source, task: Task, data: DataSettings, splits_folder: Path | None
) -> LoadedSite:
    volumes = splits_folder.with_name(VOLUMES) if splits_folder else None
    site = read_site(folder, source.name, volumes)
    kind = source.kind or site.toml.labels or "mask"
    mistakes = Findings(site.name, folder)
    mistakes.include(site.mistakes)
    check_task(site, task, mistakes, "the study for")
    splits = Splits({})
    # With cases missing, what would be said about the split is only confusing.
    if not site.mistakes:
        splits = splits_of(site, _rule(data), splits_folder, mistakes)
        check_labels(site, kind, splits.of, mistakes)
    wrong: list[str] = []
    own = as_at_site(task, {**site.toml.preparation, **source.preparation}, wrong)
    coding, errors = coding_of(site.toml, task)
    mistakes.add_all((*wrong, *errors), folder / "site.toml")
    keep = None
    if volumes and not mistakes.lines and any(case.volume for case in site.cases):
        how = repr(
            (version("polyclinic"), PREPARED, task, kind, data, source, sorted(splits.of.items()))
        )
        keep = Store(site.name, folder, volumes).path(files_below(folder), how)
        if (keep / "about.json").is_file():
            return LoadedSite(site.name, kind, (), splits, (), False, keep)
    aside = Aside(keep.parent) if keep else None
    contents = read_contents(site.cases, own, (kind,), coding, in_square=True, aside=aside)
    _note(contents, kind, task, mistakes)
    made = kind not in ("mask", *site.kinds)
    used = coding.masks if made or kind == "mask" else coding.labels
    groups = (used.groups, coding.masks.groups)
    cases = (
        _case(content, content.prepared, kind, site)
        for content in contents
        if content.prepared is not None
    )
    lines = tuple(mistakes.lines)
    measured = all(case.spacing or site.toml.spacing for case in site.cases)
    where = (made, keep, *groups, measured, aside)
    return LoadedSite(site.name, kind, tuple(cases), splits, lines, *where)


def _note(contents: Sequence[Content], kind: str, task: Task, mistakes: Findings) -> None:
    note_contents(contents, task, mistakes)
    for content in contents:
        label = content.labels.get(kind)
        if label is not None and not content.mistakes and (label == UNLABELLED).all():
            file = content.case.labels[kind]
            mistakes.add(f"no labelled pixel is left at {task.resolution}²", file)


def _case(content: Content, image: Prepared, kind: str, site: SiteFolder) -> LoadedCase:
    spacing = (1.0, 1.0)
    said = content.case.spacing or site.toml.spacing
    if said:
        (high, wide), (rows, columns) = image.geometry.pixel, said
        spacing = (rows * high, columns * wide)
    own = content.labels.get(kind)
    return LoadedCase(content.case.name, content.case.patient, image, content.mask, own, spacing)


def _site_data(site: LoadedSite, task: Task, seed: int) -> SiteData:
    """The site's tensors; of volumes they are kept, so that they are made once only."""
    kept = kept_site(site.keep) if site.keep else None
    if kept is not None:
        return kept
    made = _made(site, task, seed)
    return keep_site(made, site.keep, site.aside) if site.keep and site.aside else made


def _made(site: LoadedSite, task: Task, seed: int) -> SiteData:
    parts = {
        split: [case for case in site.cases if site.splits.of[case.name] == split]
        for split in SPLITS
    }
    return SiteData(
        name=site.name,
        kind=site.kind,
        groups=(site.label_groups,) if site.label_groups else (),
        mask_groups=site.mask_groups,
        measured=site.measured,
        **{split: _cases(cases, site, task, seed) for split, cases in parts.items()},
    )


def _cases(cases: Sequence[LoadedCase], site: LoadedSite, task: Task, seed: int) -> Cases:
    count, side = len(cases), task.resolution
    unknown = np.full((side, side), UNLABELLED, dtype=np.uint8)
    masks = [unknown if case.mask is None else case.mask for case in cases]
    labels = (_label(case, mask, site, task, seed) for case, mask in zip(cases, masks, strict=True))
    pixels = [case.image.pixels for case in cases]
    kind = np.result_type(np.uint8, *{each.dtype for each in pixels})
    stacked = site.aside.stacked if site.aside else _stacked
    factors = ([case.image.offset for case in cases], [case.image.scale for case in cases])
    offset, scale = (
        torch.from_numpy(_stacked(each, (count, task.channels), np.float32)) for each in factors
    )
    return Cases(
        names=tuple(case.name for case in cases),
        patients=tuple(case.patient for case in cases),
        images=torch.from_numpy(stacked(pixels, (count, task.channels, side, side), kind)),
        labels=torch.from_numpy(stacked(labels, (count, side, side), np.uint8)),
        masks=torch.from_numpy(stacked(map(_scored, masks), (count, side, side), np.uint8)),
        offset=offset,
        scale=scale,
        spacing=torch.tensor([case.spacing for case in cases], dtype=torch.float64).view(-1, 2),
        views=torch.from_numpy(stacked(_views(cases, side), (count, side, side), np.bool_))
        if any(case.image.view is not None for case in cases)
        else None,
    )


def _views(cases: Sequence[LoadedCase], side: int) -> Iterator[View]:
    everything = np.ones((side, side), dtype=np.bool_)
    for case in cases:
        yield everything if case.image.view is None else case.image.view


def _scored(mask: Mask) -> Mask:
    """The mask with background where nothing was seen: so is every prediction."""
    unknown = mask == UNLABELLED
    return mask if unknown.all() else np.where(unknown, np.uint8(0), mask)


def _label(case: LoadedCase, mask: Mask, site: LoadedSite, task: Task, seed: int) -> Mask:
    if site.kind == "mask":
        return mask
    if site.made:
        return made_label(mask, site.kind, task, seed=seed, site=site.name, case=case.name)
    return np.full_like(mask, UNLABELLED) if case.own is None else case.own


def _stacked(arrays: Iterable[Array], shape: tuple[int, ...], dtype: DTypeLike) -> Array:
    found = np.empty(shape, dtype)
    for number, array in enumerate(arrays):
        found[number] = array
    return found
