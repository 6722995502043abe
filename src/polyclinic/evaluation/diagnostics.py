"""Numbers that tell whether a method's parts do anything, and the words for those that do not."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

_MOST_NAMED = 8  # sites in a warning


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
    "consensus labels": Diagnostic("share of pixels that get a consensus label"),
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
        "pixels whose class changes with another site's context, over those of the objects",
        lambda value: value < 0.02,
        "swapping contexts changes pixels of {value:.1%} of the objects' area: the context has "
        "hardly an effect",
    ),
    "virtual classes used": Diagnostic(
        "virtual classes that at least a hundredth of the pixels is nearest to"
    ),
    "virtual share used": Diagnostic(
        "the same as a share of all virtual classes",
        lambda value: value <= 0.34,
        "only {value:.0%} of the virtual classes have a hundredth of the pixels: they collapsed",
    ),
    "kernels fit": Diagnostic(
        "channels before the head over real and virtual classes",
        lambda value: value < 1,
        "there are channels for {value:.0%} of the kernels, so they cannot all be orthogonal: "
        "fewer virtual_classes or a wider network",
    ),
    "guided share": Diagnostic(
        "share of the calibration's loss that comes from where the sites' models disagree",
        lambda value: value < 0.02,
        "disagreement between sites is {value:.2%} of the calibration's loss: it is fine-tuning; "
        "a larger weight or mean = guide gives it more",
    ),
    "enhancement moved": Diagnostic(
        "way of the encoder in its last enhancement, over its length",
        lambda value: value < 0.001,
        "the enhancement moved the encoder by {value:.2%} of its length: it does nothing",
    ),
    "target followed": Diagnostic(
        "share of the encoder's way that its target followed in the last enhancement",
        lambda value: value < 0.2,
        "the target followed the encoder {value:.0%} of its way, so the enhancement holds it to "
        "where it began: a larger enhancement.share, a smaller decay, or target = kept",
    ),
    "target behind": Diagnostic("distance of the kept target from the encoder, over its length"),
    "spread of features": Diagnostic(
        "how unlike images look to the encoder, about 1 for evenly on the sphere",
        lambda value: value < 0.03,
        "all images look nearly the same to the encoder (spread {value:.4f}): it collapsed",
    ),
}
"""By name; methods may note others, which are listed without a warning."""


def warnings_about(site: str, notes: Mapping[str, float]) -> Iterator[str]:
    """What is bad about the numbers of a site, in words."""
    for name, value in notes.items():
        known = DIAGNOSTICS.get(name)
        if known and known.bad and not math.isnan(value) and known.bad(value):
            yield f"{site}: {known.words.format(value=value)}"


def warnings_of(sites: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    """The same of all sites: each kind once, with the number of the first site that has it."""
    for name in dict.fromkeys(name for notes in sites.values() for name in notes):
        told = {
            site: text
            for site, notes in sites.items()
            for text in warnings_about(site, {name: notes.get(name, math.nan)})
        }
        if told:
            first, *others = told
            yield told[first] + _likewise(others)


def _likewise(others: list[str]) -> str:
    if not others:
        return ""
    named = ", ".join(others) if len(others) <= _MOST_NAMED else f"{len(others)} other sites"
    return f"; likewise at {named}"
