"""What the server checks of a site's answer before any method sees it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from polyclinic.engine.flower.payload import Payload
from polyclinic.engine.flower.transport import Answer, Trouble
from polyclinic.federation.message import Message
from polyclinic.federation.method import DISCLOSED
from polyclinic.federation.weights import Weights

Shape = tuple[str, tuple[int, ...]]  # type and size


class BadAnswer(ValueError):
    """Why an answer is not used."""


@dataclass(frozen=True)
class Signature:
    """What a message consists of, without its values."""

    weights: tuple[tuple[str, tuple[int, ...]], ...]
    extras: tuple[tuple[str, Shape], ...]

    @classmethod
    def of(cls, message: Message) -> Signature:
        """The signature of a message."""
        extras = sorted((name, _shape(tensor)) for name, tensor in message.extras.items())
        return cls(tuple(sorted(message.weights.layout.shapes)), tuple(extras))

    def conflict(self, other: Signature) -> str:
        """What of this one does not go with another's; empty where all does."""
        mine, theirs = dict(self.weights), dict(other.weights)
        odd = sorted(name for name in {*mine, *theirs} if mine.get(name) != theirs.get(name))
        if odd:
            return f"weights that differ from the other sites' in name or shape: {_few(odd)}"
        extras = dict(other.extras)
        odd = [name for name, shape in self.extras if extras.get(name, shape) != shape]
        return f"extras that differ from the other sites': {_few(odd)}" if odd else ""


def opened(site: str, answer: Answer) -> Payload:
    """The payload of a site that answered and did what it was asked; BadAnswer says why not."""
    if isinstance(answer, Trouble):
        raise BadAnswer(answer.reason)
    about = answer.about
    if "broken" in about:
        raise BadAnswer(f"its answer cannot be read: {about['broken']}")
    if about.get("site") != site:
        raise BadAnswer(f"it answered under another name: {str(about.get('site'))[:50]!r}")
    if "refused" in about:
        raise BadAnswer(f"it refused: {about['refused']}")
    return answer


def check_message(message: Message, known: Weights) -> None:
    """Refuse a message with weights that the network does not share, or with what is no number."""
    unknown = sorted(message.weights.names - known.names)
    if unknown:
        raise BadAnswer(f"its message has weights that are not shared: {_few(unknown)}")
    wrong = [n for n, tensor in message.weights.items() if tensor.shape != known[n].shape]
    if wrong:
        raise BadAnswer(f"its message has weights of another shape: {_few(wrong)}")
    tensors = {**message.weights, **message.extras}
    odd = [n for n, t in tensors.items() if t.is_floating_point() and not torch.isfinite(t).all()]
    odd += [name for name, number in message.numbers.items() if not math.isfinite(number)]
    if odd:
        raise BadAnswer(f"its message has values that are not numbers: {_few(odd)}")
    if not {"images", "steps"} <= set(message.numbers):
        raise BadAnswer("its message does not say with how many images and steps it trained")


def check_disclosure(message: Message, network: Weights) -> None:
    """Refuse what a site discloses if another site's network has no place for it."""
    disclosed = {
        name.removeprefix(f"{DISCLOSED}/"): tensor for name, tensor in message.extras.items()
    }
    wrong = [
        name
        for name, tensor in disclosed.items()
        if name not in network or _shape(tensor) != _shape(network[name])
    ]
    if wrong:
        raise BadAnswer(f"it discloses what the network does not have, or not so: {_few(wrong)}")


def odd_ones(signatures: Mapping[str, Signature], shared: Weights) -> dict[str, str]:
    """The sites whose messages are unlike most others, and in what."""
    whole = tuple(sorted(shared.layout.shapes))
    counts = Counter(signature.weights for signature in signatures.values())
    usual = max(counts, key=lambda weights: (counts[weights], weights == whole), default=())
    like = [each for each in signatures.values() if each.weights == usual]
    if not like:
        return {}
    extras = [Counter(dict(each.extras).items()) for each in like]
    shapes = {name: shape for (name, shape), _ in sum(extras, Counter()).most_common()[::-1]}
    model = Signature(usual, tuple(shapes.items()))
    found = {site: each.conflict(model) for site, each in signatures.items()}
    return {site: text for site, text in found.items() if text}


def _shape(tensor: Tensor) -> Shape:
    return str(tensor.dtype), tuple(tensor.shape)


def _few(names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(str(name)[:80] for name in names[:3]) + more
