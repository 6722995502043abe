"""What a case's files hold, read and checked, and brought to a task's resolution."""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path

import numpy as np
from PIL import Image

from polyclinic.data import box_files
from polyclinic.data.case_files import CaseFiles
from polyclinic.data.errors import UnreadableError
from polyclinic.data.readers import Array, read_image, read_mask
from polyclinic.data.tasks import Normalisation, Task
from polyclinic.masks import UNLABELLED, Mask

Finding = tuple[Path, str]


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
    cases: Sequence[CaseFiles], task: Task, kinds: Sequence[str], resolution: int | None = None
) -> list[Content]:
    """What `read_content` gives for each case, read side by side, resized where asked for."""

    def read(case: CaseFiles) -> Content:
        content = read_content(case, task, kinds)
        return content.resized(resolution) if resolution else content

    with ThreadPoolExecutor(os.cpu_count()) as threads:
        return list(threads.map(read, cases))


def read_content(case: CaseFiles, task: Task, kinds: Sequence[str]) -> Content:
    """The image, the mask and the labels of these kinds as far as the case has them."""
    content = Content(case)
    try:
        content.image = read_image(case.image, task.channels, case.slices.get(case.image))
    except UnreadableError as error:
        content.mistakes.append((case.image, str(error)))
    else:
        content.size = content.image.shape[1], content.image.shape[2]
        if content.image.min() == content.image.max():
            content.warnings.append((case.image, "every pixel has the same value"))
    if case.mask:
        content.mask = _classes(content, case.mask, ("mask",), range(len(task.classes)), task)
    for kind in kinds:
        if kind in case.labels:
            label = _label(content, case.labels[kind], kind, task)
            if label is not None:
                content.labels[kind] = label
    return content


def _label(content: Content, file: Path, kind: str, task: Task) -> Mask | None:
    if file.suffix.lower() != box_files.SUFFIX:
        allowed = (*range(len(task.classes)), UNLABELLED)
        return _classes(content, file, (kind, "label"), allowed, task)
    try:
        # Without an image, which is a mistake already, nothing is known of its size.
        image = content.image is not None
        return box_files.read_boxed_label(file, kind, content.size, task) if image else None
    except UnreadableError as error:
        content.mistakes.append((file, str(error)))
        return None


def _classes(
    content: Content, file: Path, keys: Sequence[str], allowed: Sequence[int], task: Task
) -> Mask | None:
    try:
        mask = read_mask(file, keys, content.case.slices.get(file))
    except UnreadableError as error:
        content.mistakes.append((file, str(error)))
        return None
    if content.image is not None and mask.shape != content.image.shape[1:]:
        rows, columns = mask.shape
        high, wide = content.image.shape[1:]
        content.mistakes.append((file, f"is {rows}×{columns} pixels, its image {high}×{wide}"))
    found = np.zeros(256, dtype=bool)
    found[mask] = True
    present = np.flatnonzero(found)
    unknown = [int(value) for value in present if value not in allowed]
    if unknown:
        content.mistakes.append((file, _unknown_values(unknown, allowed, task)))
    if present.tolist() == [UNLABELLED]:
        content.mistakes.append((file, "labels no pixel: all are 255"))
    return mask


def _unknown_values(unknown: Sequence[int], allowed: Sequence[int], task: Task) -> str:
    classes = ", ".join(f"{number} {name}" for number, name in enumerate(task.classes))
    found = ", ".join(map(str, unknown[:5])) + (", …" if len(unknown) > 5 else "")
    if UNLABELLED in allowed:
        return f"has the value {found}; a label has {classes}, 255 unlabelled"
    hint = " (255 means unlabelled and belongs in labels/ only)" if UNLABELLED in unknown else ""
    return f"has the value {found}; a mask has {classes}{hint}"


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
