"""Numbers that tell whether a method's parts do anything, and the words for those that do not."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Diagnostic:
    """What a number says and, where it can be bad, when it is and the words for that."""

    summary: str
    bad: Callable[[float], bool] | None = None
    words: str = ""


DIAGNOSTICS: Mapping[str, Diagnostic] = {
    "area": Diagnostic(
        "predicted over true area of the foreground",
        lambda value: not 0.5 <= value <= 2,
        "the foreground predicted has {value:.2f} times the true area",
    ),
    "tree keeps": Diagnostic(
        "foreground of the prediction filtered on the image's tree, over the predicted",
        lambda value: value < 0.5,
        "the image's tree keeps only {value:.0%} of the predicted foreground: a smaller "
        "training.weak.tree_alike keeps more",
    ),
    "pseudo label keeps": Diagnostic(
        "foreground of the pseudo label over the predicted",
        lambda value: value < 0.5,
        "the pseudo label keeps only {value:.0%} of the predicted foreground",
    ),
    "pseudo label share": Diagnostic("foreground of the pseudo label, as a share of all pixels"),
    "pseudo label Dice": Diagnostic("Dice of the pseudo label's foreground with the mask"),
    "decoders differ": Diagnostic(
        "share of pixels that the two decoders see as different classes",
        lambda value: value < 0.001,
        "the two decoders differ in {value:.2%} of pixels: the second adds nothing",
    ),
    "gates saturated": Diagnostic(
        "share of gates below 0.05 or above 0.95",
        lambda value: value > 0.7,
        "{value:.0%} of the gates are below 0.05 or above 0.95 and hardly learn any more",
    ),
    "gates over images": Diagnostic(
        "standard deviation of a gate over images",
        lambda value: value < 0.01,
        "gates differ by {value:.3f} between images: they ignore what they see",
    ),
    "W mean": Diagnostic(
        "mean of the learned mixture, 1 for all received",
        lambda value: value > 0.99,
        "W stayed within 0.01 of 1 (mean {value:.4f}): received weights are taken as they are",
    ),
    "W deviation": Diagnostic("standard deviation of the learned mixture over weights"),
    "context swapped": Diagnostic(
        "share of pixels whose class changes with another site's context",
        lambda value: value < 0.001,
        "swapping contexts changes {value:.2%} of pixels: the context has no effect",
    ),
}
"""By name; methods may note others, which are listed without a warning."""


def warnings_about(site: str, notes: Mapping[str, float]) -> Iterator[str]:
    """What is bad about the numbers of a site, in words."""
    for name, value in notes.items():
        known = DIAGNOSTICS.get(name)
        if known and known.bad and not math.isnan(value) and known.bad(value):
            yield f"{site}: {known.words.format(value=value)}"
