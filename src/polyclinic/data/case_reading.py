"""What a case's files hold, read and checked, and brought to a task's resolution."""

import os
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path

import numpy as np
from PIL import Image

from polyclinic.data import box_files
from polyclinic.data.coded_masks import decode
from polyclinic.data.coding import Coding, SiteCoding, coding_of
from polyclinic.data.errors import UnreadableError
from polyclinic.data.folder import CaseFiles
from polyclinic.data.readers import Array, read_image
from polyclinic.data.site_files import SiteToml
from polyclinic.data.tasks import Normalisation, Task
from polyclinic.masks import UNLABELLED, Mask

Finding = tuple[Path, str]
FILLED = ("box", "rotated-box")  # the kinds of label that leave no pixel out
ALL_LABELLED = (
    "labels every pixel, so what was not drawn will train as its value; save it as 255, or name "
    'that value "unlabelled" in weak.values of site.toml (docs/data.md, Masks)'
)


@dataclass
class Content:
    """One case's arrays at the size of its files, and their errors and warnings."""

    case: CaseFiles
    image: Array | None = None  # C×H×W
    mask: Mask | None = None
    labels: dict[str, Mask] = field(default_factory=dict)  # kind → H×W
    size: tuple[int, int] = (0, 0)  # of the image in its file, also after resizing
    mistakes: list[Finding] = field(default_factory=list)
    warnings: list[Finding] = field(default_factory=list)
    seen: dict[str, Counter[str]] = field(default_factory=dict)  # kind → codes not understood

    def digest(self) -> bytes:
        """A fingerprint by which equal images are found, empty without an image."""
        return b"" if self.image is None else blake2b(self.image.data, digest_size=16).digest()

    def resized(self, resolution: int) -> "Content":
        """The same with image, mask and labels of `resolution` × `resolution` pixels."""
        return replace(
            self,
            image=None if self.image is None else resized_image(self.image, resolution),
            mask=None if self.mask is None else resized_mask(self.mask, resolution),
            labels={kind: resized_mask(mask, resolution) for kind, mask in self.labels.items()},
        )


def read_contents(
    cases: Sequence[CaseFiles],
    task: Task,
    kinds: Sequence[str],
    resolution: int | None = None,
    coding: SiteCoding | None = None,
) -> list[Content]:
    """What `read_content` gives for each case, read side by side, resized where asked for."""

    def read(case: CaseFiles) -> Content:
        content = read_content(case, task, kinds, coding)
        return content.resized(resolution) if resolution else content

    with ThreadPoolExecutor(os.cpu_count()) as threads:
        return list(threads.map(read, cases))


def read_content(
    case: CaseFiles, task: Task, kinds: Sequence[str], coding: SiteCoding | None = None
) -> Content:
    """The image, the mask and the labels of these kinds as far as the case has them.

    Without a coding masks and labels hold class numbers.
    """
    coding = coding or coding_of(SiteToml(), task)[0]
    content = Content(case)
    try:
        content.image = read_image(case.image, task.channels)
    except UnreadableError as error:
        content.mistakes.append((case.image, str(error)))
    else:
        content.size = content.image.shape[1], content.image.shape[2]
        if content.image.min() == content.image.max():
            content.warnings.append((case.image, "every pixel has the same value"))
    if case.mask:
        content.mask = _classes(content, case.mask, "mask", coding.masks)
    for kind in kinds:
        if kind in case.labels:
            label = _label(content, case.labels[kind], kind, task, coding.labels)
            if label is not None:
                content.labels[kind] = label
    return content


def _label(content: Content, file: Path, kind: str, task: Task, coding: Coding) -> Mask | None:
    if file.suffix.lower() != box_files.SUFFIX:
        label = _classes(content, file, kind, coding)
        if label is not None and kind not in FILLED and not (label == UNLABELLED).any():
            content.warnings.append((file, ALL_LABELLED))
        return label
    try:
        # Without an image, which is a mistake already, nothing is known of its size.
        if content.image is None:
            return None
        return box_files.read_boxed_label(file, kind, content.size, task, coding.groups)
    except UnreadableError as error:
        content.mistakes.append((file, str(error)))
        return None


def _classes(content: Content, file: Path, kind: str, coding: Coding) -> Mask | None:
    label = kind != "mask"
    keys = (kind, "label") if label else (kind,)
    try:
        found = decode(file, keys, coding, label=label, image=content.image)
    except UnreadableError as error:
        content.mistakes.append((file, str(error)))
        return None
    if content.image is not None and found.mask.shape != content.image.shape[1:]:
        rows, columns = found.mask.shape
        high, wide = content.image.shape[1:]
        content.mistakes.append((file, f"is {rows}×{columns} pixels, its image {high}×{wide}"))
    if found.problem:
        content.mistakes.append((file, found.problem))
        content.seen[kind] = found.seen
    elif (found.mask == UNLABELLED).all() and coding.certain:
        content.mistakes.append((file, "labels no pixel: all are 255"))
    return found.mask


def resized_image(image: Array, resolution: int) -> Array:
    """C×R×R, bilinear and antialiased, the very same array where the size is right already."""
    if image.shape[1:] == (resolution, resolution):
        return image
    return np.stack([_resized(plane, resolution, Image.Resampling.BILINEAR) for plane in image])


def resized_mask(mask: Mask, resolution: int) -> Mask:
    """R×R, each pixel the nearest one's class."""
    if mask.shape == (resolution, resolution):
        return mask
    return _resized(mask, resolution, Image.Resampling.NEAREST)


def _resized(plane: Array, resolution: int, how: Image.Resampling) -> Array:
    return np.asarray(Image.fromarray(plane).resize((resolution, resolution), how))


def normalisation(images: Array, how: Normalisation) -> tuple[Array, Array]:
    """Offset and scale (N float32) of N×C×H×W images, jointly over an image's channels.

    "minmax" brings an image to 0…1, "standard" to mean 0 and deviation 1; a constant image to 0.
    """
    pixels = images.reshape(len(images), -1) if len(images) else np.zeros((0, 1))
    if how == "minmax":
        offset = pixels.min(axis=1).astype(np.float64)
        scale = pixels.max(axis=1) - offset
    else:
        offset = pixels.mean(axis=1, dtype=np.float64)
        scale = pixels.std(axis=1, dtype=np.float64)
    scale = np.where(scale > 0, scale, 1.0)
    return offset.astype(np.float32), scale.astype(np.float32)
