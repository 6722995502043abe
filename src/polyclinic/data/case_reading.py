"""What a case's files hold, read and checked, and brought to a task's square."""

import os
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from polyclinic.data import box_files
from polyclinic.data.aside import Aside
from polyclinic.data.case_files import CaseFiles
from polyclinic.data.coded_masks import decode
from polyclinic.data.coding import Coding, SiteCoding, coding_of
from polyclinic.data.errors import UnreadableError
from polyclinic.data.preparing import Prepared, View, prepare
from polyclinic.data.readers import Array, read_image, read_mask
from polyclinic.data.site_files import SiteToml
from polyclinic.data.tasks import Task
from polyclinic.masks import UNLABELLED, Mask

Finding = tuple[Path, str]
FILLED = ("box", "rotated-box")  # the kinds of label that leave no pixel out
ALL_LABELLED = (
    "labels every pixel, so what was not drawn will train as its value; save it as 255, or name "
    'that value "unlabelled" in weak.values of site.toml (docs/data.md, Masks with other values)'
)


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
    seen: dict[str, Counter[str]] = field(default_factory=dict)  # kind → codes not understood

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
        there = prepared.geometry
        return replace(
            self,
            image=prepared.pixels,
            mask=None if self.mask is None else there.mask_there(self.in_view(self.mask)),
            labels={kind: there.label_there(self.in_view(it)) for kind, it in self.labels.items()},
            prepared=prepared,
        )

    def put(self, aside: Aside) -> "Content":
        """The same with its arrays put aside."""

        def put(array: Any) -> Any:
            return None if array is None else aside.put(array)

        image, prepared = put(self.image), self.prepared
        if prepared is not None:  # whose pixels are the image
            prepared = replace(prepared, pixels=image, view=put(prepared.view))
        return replace(
            self,
            image=image,
            mask=put(self.mask),
            labels={kind: put(label) for kind, label in self.labels.items()},
            view=put(self.view),
            prepared=prepared,
        )


def read_contents(
    cases: Sequence[CaseFiles],
    task: Task,
    kinds: Sequence[str],
    coding: SiteCoding | None = None,
    *,
    in_square: bool = False,
    aside: Aside | None = None,
) -> list[Content]:
    """What `read_content` gives for each case, read side by side, in the square if asked for.

    With `aside` the arrays lie there, not in memory.
    """

    def read(case: CaseFiles) -> Content:
        content = read_content(case, task, kinds, coding)
        content = content.in_square(task) if in_square else content
        return content.put(aside) if aside else content

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


def _classes(content: Content, file: Path, kind: str, coding: Coding) -> Mask | None:
    label = kind != "mask"
    keys = (kind, "label") if label else (kind,)
    piece = content.case.slices.get(file)
    try:
        found = decode(file, keys, coding, label=label, image=content.image, piece=piece)
    except UnreadableError as error:
        content.mistakes.append((file, str(error)))
        return None
    if content.image is not None and found.mask.shape != content.size:
        content.mistakes.append((file, _other_size(found.mask, content)))
    if found.problem:
        content.mistakes.append((file, found.problem))
        content.seen[kind] = found.seen
    elif (found.mask == UNLABELLED).all() and coding.certain:
        content.mistakes.append((file, "labels no pixel: all are 255"))
    return found.mask


def _other_size(pixels: Array, content: Content) -> str:
    (rows, columns), (high, wide) = pixels.shape, content.size
    return f"is {rows}×{columns} pixels, its image {high}×{wide}"
