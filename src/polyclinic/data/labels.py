"""What a site trains on: its masks, label files of one kind, or labels made from its masks."""

from collections.abc import Mapping

import numpy as np

from polyclinic.config.mistakes import did_you_mean
from polyclinic.data.errors import Findings, listed
from polyclinic.data.folder import SiteFolder
from polyclinic.data.tasks import Task
from polyclinic.masks import UNLABELLED, Mask
from polyclinic.seeds import numpy_generator
from polyclinic.weak import KINDS, weaken


def check_labels(
    site: SiteFolder, kind: str, splits: Mapping[str, str], mistakes: Findings
) -> None:
    """Add a mistake where cases lack what `kind` needs for training, or a mask for scoring."""
    # A case without either was found when the folder was read.
    maskless = [case.name for case in site.cases if case.labels and not case.mask]
    if kind == "mask":
        if maskless:
            mistakes.add(f'no mask for {listed(maskless)}, though it trains on "mask"')
        return
    training = [case for case in site.cases if splits.get(case.name) == "train"]
    if any(kind in case.labels for case in site.cases):
        without = [case.name for case in training if kind not in case.labels]
        if without:
            mistakes.add(f"no {kind} label for {listed(without)}")
    else:
        check_kind(kind, site.kinds, mistakes)
        without = [case.name for case in training if case.name in maskless]
        if without and kind in KINDS:
            mistakes.add(f"no mask to make a {kind} label from for {listed(without)}")
    scored = [name for name in maskless if splits.get(name) in ("val", "test")]
    if scored and "mask" in site.kinds:
        mistakes.add(f"no mask to score {listed(scored)} with")


def check_kind(kind: str, files: tuple[str, ...], mistakes: Findings) -> None:
    """Add a mistake where labels of a kind that no file has cannot be made from masks either."""
    if kind not in ("mask", *KINDS):
        known = tuple(dict.fromkeys((*files, *KINDS)))
        mistakes.add(
            f'no labels of kind "{kind}": it has {", ".join(files) or "none"}, and from masks can '
            f"be made {', '.join(KINDS) or 'none'}{did_you_mean(kind, known)}"
        )


def made_label(mask: Mask, kind: str, task: Task, *, seed: int, site: str, case: str) -> Mask:
    """A label of this kind out of a mask, the same for the same seed, site and case.

    It is made at the mask's own size: a label drawn large and made small would lose its thin lines.
    """
    if (mask == UNLABELLED).all():
        return np.full_like(mask, UNLABELLED)
    return weaken(mask, kind, numpy_generator(seed, "label", kind, site, case), task)
