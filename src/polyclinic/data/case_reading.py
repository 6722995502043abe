"""What a case's files hold, read and checked, and brought to a task's square."""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path

import numpy as np

from polyclinic.data import box_files
from polyclinic.data.case_files import CaseFiles
from polyclinic.data.errors import UnreadableError
from polyclinic.data.preparing import Prepared, View, prepare
from polyclinic.data.readers import Array, read_image, read_mask
from polyclinic.data.tasks import Task
from polyclinic.masks import UNLABELLED, Mask

Finding = tuple[Path, str]


@dataclass
class Content:
    """One case's arrays at the size of its files, and their errors and warnings.

    What lies out of a `view` is unlabelled once the case is `prepared`.
    """

    case: CaseFiles
    image: Array | None = None  # C×H×W
    mask: Mask | None = None
    labels: dict[str, Mask] = field(default_factory=dict)  # kind → H×W
    view: View | None = None
    size: tuple[int, int] = (0, 0)  # of the image in its file
    prepared: Prepared | None = None  # the image in the square, where mask and labels are, too
    mistakes: list[Finding] = field(default_factory=list)
    warnings: list[Finding] = field(default_factory=list)

    def digest(self) -> bytes:
        """A fingerprint by which equal images are found, empty without an image."""
        return b"" if self.image is None else blake2b(self.image.data, digest_size=16).digest()

    def in_view(self, mask: Mask) -> Mask:
        """The mask or label, unlabelled where nothing was seen."""
        if self.view is None or self.view.shape != mask.shape:  # which is a mistake already
            return mask
        return np.where(self.view, mask, np.uint8(UNLABELLED))

    def in_square(self, task: Task) -> "Content":
        """The same with image, mask and labels in the task's square."""
        if self.image is None:
            return self
        fits = self.view is not None and self.view.shape == self.size
        prepared = prepare(self.image, task, self.view if fits else None)

        def there(mask: Mask) -> Mask:
            return prepared.geometry.mask_there(self.in_view(mask))

        return replace(
            self,
            image=prepared.pixels,
            mask=None if self.mask is None else there(self.mask),
            labels={kind: there(label) for kind, label in self.labels.items()},
            prepared=prepared,
        )


def read_contents(
    cases: Sequence[CaseFiles], task: Task, kinds: Sequence[str], *, in_square: bool = False
) -> list[Content]:
    """What `read_content` gives for each case, read side by side, in the square if asked for."""

    def read(case: CaseFiles) -> Content:
        content = read_content(case, task, kinds)
        return content.in_square(task) if in_square else content

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
    if case.view:
        content.view = _view(content, case.view)
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


def _view(content: Content, file: Path) -> View | None:
    try:
        seen = read_mask(file, ("view",)) > 0
    except UnreadableError as error:
        content.mistakes.append((file, str(error)))
        return None
    if content.image is not None and seen.shape != content.size:
        content.mistakes.append((file, _other_size(seen, content)))
    elif not seen.any():
        content.mistakes.append((file, "shows nothing: every pixel is 0"))
    return seen


def _classes(
    content: Content, file: Path, keys: Sequence[str], allowed: Sequence[int], task: Task
) -> Mask | None:
    try:
        mask = read_mask(file, keys, content.case.slices.get(file))
    except UnreadableError as error:
        content.mistakes.append((file, str(error)))
        return None
    if content.image is not None and mask.shape != content.size:
        content.mistakes.append((file, _other_size(mask, content)))
    found = np.zeros(256, dtype=bool)
    found[mask] = True
    present = np.flatnonzero(found)
    unknown = [int(value) for value in present if value not in allowed]
    if unknown:
        content.mistakes.append((file, _unknown_values(unknown, allowed, task)))
    if present.tolist() == [UNLABELLED]:
        content.mistakes.append((file, "labels no pixel: all are 255"))
    return mask


def _other_size(pixels: Array, content: Content) -> str:
    (rows, columns), (high, wide) = pixels.shape, content.size
    return f"is {rows}×{columns} pixels, its image {high}×{wide}"


def _unknown_values(unknown: Sequence[int], allowed: Sequence[int], task: Task) -> str:
    classes = ", ".join(f"{number} {name}" for number, name in enumerate(task.classes))
    found = ", ".join(map(str, unknown[:5])) + (", …" if len(unknown) > 5 else "")
    if UNLABELLED in allowed:
        return f"has the value {found}; a label has {classes}, 255 unlabelled"
    hint = " (255 means unlabelled and belongs in labels/ only)" if UNLABELLED in unknown else ""
    return f"has the value {found}; a mask has {classes}{hint}"
