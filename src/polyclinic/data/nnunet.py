"""nnU-Net's raw datasets: `dataset.json`, `imagesTr`, `labelsTr`, a file for each channel."""

import json
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

from polyclinic.data.errors import Findings
from polyclinic.data.formats.nifti import is_nifti, stem
from polyclinic.data.volume_finding import FoundVolume, is_picture

DESCRIPTION = "dataset.json"
CHANNEL = re.compile(r"(.+)_(\d{4})$")


def is_nnunet(folder: Path) -> bool:
    """Whether a folder is such a dataset."""
    return (folder / DESCRIPTION).is_file() and (folder / "imagesTr").is_dir()


def check_description(folder: Path, mistakes: Findings) -> None:
    """Note what in `dataset.json` cannot be followed."""
    file = folder / DESCRIPTION
    try:
        said: Any = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        mistakes.add(f"cannot be read: {error}", file)
        return
    labels = said.get("labels") if isinstance(said, dict) else None
    if not isinstance(labels, dict):
        mistakes.add('has no table "labels"', file)
    elif "ignore" in labels:
        mistakes.add("has an ignore label; such masks are labels/<kind> of a site folder", file)


def find_cases(images: Path, masks: Path, mistakes: Findings) -> list[FoundVolume]:
    """The cases of `imagesTr` or `imagesTs`, each with all its channels and its mask."""
    channels: dict[str, dict[int, Path]] = defaultdict(dict)
    for file in _files(images, mistakes):
        match = CHANNEL.match(_stem(file))
        if match is None:
            mistakes.add("has no number of a channel, such as _0000, in its name", file)
        else:
            channels[match[1]][int(match[2])] = file
    annotated = {_stem(file): file for file in _files(masks, mistakes)}
    for name in sorted(annotated.keys() - channels.keys()):
        mistakes.add(f"there is no image {name}_0000 to it", annotated[name])
    found = []
    for name, files in sorted(channels.items()):
        numbers = sorted(files)
        if numbers != list(range(len(numbers))):
            first = files[numbers[0]]
            mistakes.add(f"lacks a channel: there are {', '.join(map(str, numbers))}", first)
            continue
        ordered = tuple(files[number] for number in numbers)
        mask = {"mask": annotated[name]} if name in annotated else {}
        found.append(FoundVolume(name, name, ordered, annotations=mask))
    return found


def has_channels(image: Path) -> bool:
    """Whether an image's further channels lie in files beside it."""
    return "_0000" in image.name and image.with_name(image.name.replace("_0000", "_0001")).exists()


def _files(folder: Path, mistakes: Findings) -> list[Path]:
    files = []
    for file in sorted(folder.iterdir()) if folder.is_dir() else ():
        if is_nifti(file) or is_picture(file):
            files.append(file)
        elif not file.name.startswith("."):
            mistakes.add("is neither NIfTI nor a picture", file)
    return files


def _stem(file: Path) -> str:
    return stem(file) if is_nifti(file) else file.stem
