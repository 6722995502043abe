"""A site as one of nnU-Net's raw datasets."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from PIL import Image

from polyclinic.data.case_files import CaseFiles
from polyclinic.data.case_reading import Content, read_content
from polyclinic.data.coding import coding_of
from polyclinic.data.errors import DataError, Findings, refuse
from polyclinic.data.folder import SiteFolder, read_site
from polyclinic.data.formats.nifti import write_nifti
from polyclinic.data.formats.store import kept_volume
from polyclinic.data.formats.volume import Array, Volume
from polyclinic.data.nnunet import DESCRIPTION
from polyclinic.data.splits import check_kept
from polyclinic.data.tasks import Task


def export_nnunet(
    folder: Path, destination: Path, task: Task, volumes: Path | None = None
) -> tuple[dict[str, int], list[str]]:
    """Write a site's images and masks as `imagesTr`, `labelsTr`, … and a `dataset.json`.

    Gives the numbers of cases for training and testing, and a line for all that is left out. Cases
    of the site's own test split go to `imagesTs`. Pictures of 8 bits stay PNG, all else is NIfTI.
    The dataset appears when it is complete.
    """
    site = read_site(folder, volumes=volumes)
    mistakes = Findings(site.name, site.folder)
    mistakes.include(site.mistakes)
    coding, errors = coding_of(site.toml, task)
    mistakes.add_all(errors, site.folder / "site.toml")
    if coding.masks.groups:
        mistakes.add("does not annotate all classes of the task, which nnU-Net's labels cannot say")
    splits = check_kept(site, mistakes)
    if destination.exists():
        mistakes.add(f"{destination} is there already; choose another place")
    if destination.resolve().is_relative_to(folder.resolve()):
        mistakes.add(f"{destination} lies within the site's folder, which is only read")
    refuse(mistakes.lines)
    left = Findings(site.name, site.folder)
    destination.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=".export-", dir=destination.parent) as unfinished:
        made = Path(unfinished, "dataset")
        counts = _write(site, task, splits, made, left)
        made.rename(destination)
    return counts, left.lines


def _write(
    site: SiteFolder, task: Task, splits: Mapping[str, str], folder: Path, left: Findings
) -> dict[str, int]:
    counts = {"Tr": 0, "Ts": 0}
    pictures = all(map(_is_png, site.by_file.values()))
    for part in ("imagesTr", "labelsTr"):
        (folder / part).mkdir(parents=True)
    for name, cases in site.by_file.items():
        if any(case.mask is None for case in cases):
            left.add("has no mask for every slice; nnU-Net trains on whole masks", cases[0].image)
            continue
        split = splits.get(cases[0].name) or cases[0].split
        part = "Ts" if split == "test" else "Tr"
        for each in (f"images{part}", f"labels{part}"):
            (folder / each).mkdir(exist_ok=True)
        contents = [_read(case, task, site) for case in cases]
        names = folder / f"images{part}" / name, folder / f"labels{part}" / name
        (_write_picture if pictures else _write_volume)(contents, *names)
        counts[part] += 1
    if not counts["Tr"]:
        raise DataError([f"site {site.name}: there is nothing to train on", *left.lines])
    (folder / DESCRIPTION).write_text(
        json.dumps(_description(site, task, counts, ".png" if pictures else ".nii.gz"), indent=2)
    )
    return counts


def _read(case: CaseFiles, task: Task, site: SiteFolder) -> Content:
    content = read_content(case, task, (), coding_of(site.toml, task)[0])
    mistakes = Findings(site.name, site.folder)
    for file, text in content.mistakes:
        mistakes.add(text, file)
    refuse(mistakes.lines)
    return content


def _is_png(cases: Sequence[CaseFiles]) -> bool:
    """Whether the image is a picture of 8 bits, as far as its ending and its header say."""
    (first, *others) = cases
    if others or first.volume or first.image.suffix.lower() not in (".png", ".jpg", ".jpeg"):
        return False
    with Image.open(first.image, formats=("PNG", "JPEG")) as picture:
        return not picture.mode.startswith(("I", "F"))


def _write_picture(contents: Sequence[Content], image: Path, mask: Path) -> None:
    (content,) = contents
    assert content.image is not None
    assert content.mask is not None
    pixels = np.ascontiguousarray(content.image.transpose(1, 2, 0).squeeze())
    Image.fromarray(pixels).save(f"{image}_0000.png")
    Image.fromarray(content.mask).save(f"{mask}.png")


def _write_volume(contents: Sequence[Content], image: Path, mask: Path) -> None:
    """A file for each channel, as its volume lies in space."""
    images = np.stack([content.image for content in contents if content.image is not None])
    masks = np.stack([content.mask for content in contents if content.mask is not None])
    first = contents[0].case
    volume = kept_volume(first.slices[first.image][0]) if first.volume else None
    for channel in range(images.shape[1]):
        path = image.with_name(f"{image.name}_{channel:04d}.nii.gz")
        write_nifti(path, *_placed(images[:, channel], volume, first))
    write_nifti(mask.with_name(f"{mask.name}.nii.gz"), *_placed(masks, volume, first))


def _placed(slices: Array, volume: Volume | None, case: CaseFiles) -> tuple[Array, Array]:
    """Slices in the order of a NIfTI array, and its affine."""
    if volume is not None and volume.affine is not None:
        return np.ascontiguousarray(volume.restored(slices)), volume.affine
    rows, columns = case.spacing or (1.0, 1.0)
    return np.ascontiguousarray(slices.transpose(2, 1, 0)), np.diag([-columns, -rows, 1.0, 1.0])


def _description(
    site: SiteFolder, task: Task, counts: Mapping[str, int], ending: str
) -> dict[str, object]:
    # nnU-Net chooses how to normalise by the channel's name.
    name = "rgb_to_0_1" if ending == ".png" else site.toml.modality or "zscore"
    return {
        "name": f"{site.name} {task.name}",
        "channel_names": {str(number): name for number in range(task.channels)},
        "labels": {"background": 0, **{c: n for n, c in enumerate(task.classes) if n}},
        "numTraining": counts["Tr"],
        "file_ending": ending,
    }
