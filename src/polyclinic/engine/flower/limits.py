"""The limits that a site sets to a study's settings."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import is_dataclass
from fnmatch import fnmatchcase
from typing import Any

from polyclinic.config import Study
from polyclinic.config.node_file import Permissions

LEAST_SIDE = 32  # pixels: means over fewer show them
LEAST_TURN = 5.0  # degrees of rotation that count as varying images
LEAST_LOOK = 0.1  # of gamma, contrast or noise
ABSOLUTE = ("learning_rate", "inner_rate", "selector_rate")
SHARES = ("share", "alone", "personal")  # settings in multiples of a round's steps end so
BOUNDED_BY = {"pretrain_steps": "iterations", "share_of_images": "epochs"}  # by limits so called
LEAST_RATE = 1e-6  # below it nothing is learned, and an image's statistics leave all the same


def fits(name: str, allowed: Iterable[str]) -> bool:
    """Whether a name is among those allowed, in which * stands for anything."""
    return any(fnmatchcase(name, pattern) for pattern in allowed)


def refused_settings(
    allow: Permissions, methods: Iterable[str], budgets: Mapping[str, int]
) -> list[str]:
    """The methods that a site does not agree to, and the training that is longer than it allows."""
    refused = [
        f"the method {name} is not among those allowed ({', '.join(allow.methods)})"
        for name in methods
        if not fits(name, allow.methods)
    ]
    for name, budget in budgets.items():
        last = name.rpartition(".")[2]
        most = getattr(allow, BOUNDED_BY.get(last, last))
        if budget > most:
            refused.append(f"{name} = {budget} is more than the {most} allowed")
    return refused


def refused_training(allow: Permissions, study: Study) -> list[str]:
    """What of a study's training is outside the bounds within which little of an image shows."""
    training, rounds, task = study.training, study.federation.rounds, study.task.built
    refused = []
    if training.batch < allow.batch:
        refused.append(
            f"training.batch = {training.batch} is fewer than the {allow.batch} images needed"
        )
    if not LEAST_RATE <= training.learning_rate <= allow.learning_rate:
        refused.append(
            f"training.learning_rate = {training.learning_rate:g} is not between {LEAST_RATE:g} "
            f"and the {allow.learning_rate:g} allowed"
        )
    for name, rate in rates_of(study).items():
        if rate > allow.learning_rate:
            refused.append(
                f"{name} makes a learning rate of {rate:g}, more than the "
                f"{allow.learning_rate:g} allowed"
            )
    augmentation = training.augmentation
    looks = (augmentation.gamma, augmentation.contrast, augmentation.noise)
    varied = augmentation.flips or augmentation.quarter_turns
    varied |= augmentation.rotation >= LEAST_TURN or max(looks) >= LEAST_LOOK
    if allow.augmentation and not varied:
        refused.append(
            "training.augmentation leaves all images nearly as they are, and must vary them"
        )
    asked = validations(study)
    if asked > allow.validations:
        refused.append(
            f"{asked} validations, after every {study.evaluation.every} of {rounds} rounds, are "
            f"more than the {allow.validations} allowed"
        )
    if rounds > allow.rounds:
        refused.append(f"federation.rounds = {rounds} is more than the {allow.rounds} allowed")
    if task.side < LEAST_SIDE:
        name = "tile" if task.tile else "resolution"
        refused.append(f"task.{name} = {task.side} is less than the {LEAST_SIDE} pixels needed")
    if task.resolution > allow.resolution:
        refused.append(
            f"task.resolution = {task.resolution} is more than the {allow.resolution} allowed"
        )
    return refused


def validations(study: Study) -> int:
    """How often a run of the study validates."""
    last = study.federation.rounds
    return sum(study.evaluation.due(number, last) for number in range(1, last + 1))


def budgets_of(study: Study) -> dict[str, int]:
    """Every setting of a study called iterations or epochs, the largest over its methods.

    So are steps of a start from drawn images, what is told as a share of a round's steps, and all
    first passes of one that learns a mixture.
    """
    training = study.training
    unit = "iterations" if training.iterations else "epochs"
    largest: Counter[str] = Counter()
    for name, settings in (("training", dict(training)), *_pieces(study)):
        largest |= Counter(dict(_budgets({name: settings})))
        for share, value in _numbers({name: settings}, SHARES):
            steps = math.ceil(value * (training.iterations or training.epochs or 0))
            largest |= Counter({f"{share} × training.{unit}": steps})
    if training.pretrain == "synthetic":
        largest["training.pretrain_steps"] = training.pretrain_steps
    return dict(largest)


def rates_of(study: Study) -> dict[str, float]:
    """The learning rates that methods make for their sites, by the settings that they come from.

    A setting called `rate` is over that of `training`, and so are others but those of ABSOLUTE.
    """
    return {
        name: value if name.endswith(ABSOLUTE) else value * study.training.learning_rate
        for piece, settings in _pieces(study)
        for name, value in _numbers({piece: settings}, ("rate",))
    }


def _pieces(study: Study) -> Iterator[tuple[str, Any]]:
    """Methods and finishing steps by name."""
    for each in study.method:
        yield from ((piece.name, piece.built) for piece in (each, *each.then))


def _numbers(
    settings: Mapping[str, Any], ends: tuple[str, ...], prefix: str = ""
) -> Iterator[tuple[str, float]]:
    """All settings that are numbers and whose names end so."""
    for key, value in settings.items():
        inner = vars(value) if is_dataclass(value) else value
        if isinstance(inner, Mapping):
            yield from _numbers(inner, ends, f"{prefix}{key}.")
        elif key.endswith(ends) and isinstance(value, int | float):
            yield f"{prefix}{key}", value


def _budgets(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, int]]:
    """All settings called iterations or, where these do not overrule them, epochs."""
    for key in ("iterations", "epochs"):
        if isinstance(settings.get(key), int):
            yield f"{prefix}{key}", settings[key]
            break
    passes = settings.get("first_passes", 1)
    for key in ("iterations", "share_of_images"):
        if passes > 1 and settings.get(key):
            yield f"{prefix}first_passes × {prefix}{key}", math.ceil(passes * settings[key])
            break
    for key, value in settings.items():
        inner = vars(value) if is_dataclass(value) else value
        if isinstance(inner, Mapping):
            yield from _budgets(inner, f"{prefix}{key}.")
