"""Weak labels out of full masks: `weaken(mask, "scribble", rng, task="fundus")`.

A label has the mask's size: class numbers where something is labelled, 255 where nothing is.
"""

from collections.abc import Sequence

import numpy as np

from polyclinic.config.mistakes import did_you_mean
from polyclinic.masks import UNLABELLED, Mask
from polyclinic.weak.blocks import blocks
from polyclinic.weak.box_kinds import as_blocks, as_scribbles, box_kind, filled
from polyclinic.weak.boxes import Box, Shape
from polyclinic.weak.kind import Kind, Sparsity
from polyclinic.weak.points import points
from polyclinic.weak.regions import deepest
from polyclinic.weak.scribbles import ragged_scribbles, scribbles
from polyclinic.weak.sizes import sized
from polyclinic.weak.style import STYLES, TaskLike, present, style_of

KINDS: dict[str, Kind] = {
    "point": Kind(points, "four dabs inside an object and four around it", "8 clicks", "sparse"),
    "scribble": Kind(scribbles, "a stroke inside an object and one around it", "2 strokes"),
    "scribble2": Kind(ragged_scribbles, "the same in a ragged, broken line", "2 quick strokes"),
    "block": Kind(blocks, "all but a wide seam along the outline", "2 rough outlines", "dense"),
    "box": box_kind(filled, "an upright box, filled, on background"),
    "rotated-box": box_kind(filled, "the tightest of all turned boxes, filled", turned=True),
    "box-block": box_kind(as_blocks, "a box's central third, and background well off the box"),
    "box-scribble": box_kind(
        as_scribbles, "scribbles as in the ellipse that a box holds", sparsity="medium"
    ),
    "rotated-box-block": box_kind(as_blocks, "the same as box-block in a turned box", turned=True),
}


def weaken(
    mask: Mask,
    kind: str,
    rng: np.random.Generator,
    task: str | TaskLike | None = None,
) -> Mask:
    """The label of this kind that an annotator would have drawn instead of the mask.

    Of a task that nothing is known of, it is drawn in proportion to what the mask shows. Every
    class of the mask has a pixel in it. Labelled pixels agree with the mask; those of boxes and of
    what is made from boxes agree with the box.
    """
    if mask.ndim != 2 or not mask.size or mask.dtype != np.uint8:
        raise ValueError(f"a mask is H×W and uint8, not {mask.dtype} of shape {mask.shape}")
    mask = np.ascontiguousarray(mask)
    style = style_of(task)
    if not isinstance(task, str | None) and task.name not in STYLES:
        style = sized(style, mask)
    label = _kind(kind).draw(mask, rng, style)
    label[mask == UNLABELLED] = UNLABELLED
    numbers = present(mask)
    # Again, because the one pixel of a class may take the place of another's that boxes put there.
    while missing := [number for number in numbers if not (label == number).any()]:
        for number in missing:
            label[deepest(mask == number)] = number
    return label


def sparsity_of(kind: str) -> Sparsity:
    """How sparse labels are: masks dense, those of a kind that there are only files of, medium."""
    if kind == "mask":
        return "dense"
    return KINDS[kind].sparsity if kind in KINDS else "medium"


def label_boxes(
    boxes: Sequence[Box],
    shape: Shape,
    kind: str,
    rng: np.random.Generator,
    task: str | TaskLike | None = None,
) -> Mask:
    """The label of this kind out of an annotator's own boxes; only kinds with "box" have one."""
    convert = _kind(kind).convert
    if convert is None:
        possible = ", ".join(name for name, each in KINDS.items() if each.convert)
        raise ValueError(f'boxes make no label of kind "{kind}"; they make {possible}')
    return convert(boxes, shape, rng, style_of(task))


def _kind(name: str) -> Kind:
    if name not in KINDS:
        raise ValueError(
            f'no kind "{name}"; there are {", ".join(KINDS)}{did_you_mean(name, KINDS)}'
        )
    return KINDS[name]
