"""What the server refuses in the replies of sites: it trusts no number, name or shape of theirs."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median

import torch

from polyclinic.data.errors import listed
from polyclinic.engine.flower.carrier import PayloadError
from polyclinic.engine.flower.protocol import MOST, ScoreResponse
from polyclinic.engine.flower.sealing import KEYS, ROOM
from polyclinic.evaluation import Metric
from polyclinic.evaluation.scoring import ALL_CLASSES
from polyclinic.federation.message import Message
from polyclinic.federation.method import DISCLOSED
from polyclinic.federation.weights import LARGEST, Weights

Shape = tuple[str, tuple[int, ...]]  # type and size
UNLIKE = 2.0  # how many times as many steps as others, or as few, a site may have taken


def check_message(message: Message, known: Weights, images: int) -> None:
    """Refuse a message with weights that the network does not share, or with invalid values.

    The site said at first with how many images it trains; it is not believed another number later.
    """
    unknown = sorted(message.weights.names - known.names)
    if unknown:
        raise PayloadError(
            f"its message has weights that are not shared: {listed(unknown, most=3)}"
        )
    other = [n for n, tensor in message.weights.items() if tensor.shape != known[n].shape]
    if other:
        raise PayloadError(f"its message has weights of another shape: {listed(other, most=3)}")
    if bad := message.not_finite():
        raise PayloadError(f"its message has values that are not numbers: {listed(bad, most=3)}")
    if message.absurd():
        raise PayloadError(f"its message has weights beyond ±{LARGEST:g}")
    counts = [message.numbers.get(name, -1) for name in ("images", "steps")]
    if not all(0 <= count <= MOST and float(count).is_integer() for count in counts):
        raise PayloadError("its message does not say with how many images and steps it trained")
    if counts[0] != images:
        raise PayloadError(f"it has {images} training images, and its message speaks of others")


def check_disclosure(message: Message, network: Weights) -> None:
    """Refuse what a site discloses if another site's network has no place for it.

    It is encrypted: only its name and its size can be seen.
    """
    disclosed = {
        name.removeprefix(f"{DISCLOSED}/"): tensor
        for name, tensor in message.extras.items()
        if name != f"{DISCLOSED}/{KEYS}"
    }
    other = [
        name
        for name, tensor in disclosed.items()
        if name not in network
        or tensor.dtype != torch.uint8
        or not 0 <= tensor.nbytes - network[name].nbytes <= ROOM
    ]
    if other:
        raise PayloadError(f"it discloses what the network does not have: {listed(other, most=3)}")


def check_scores(
    scores: ScoreResponse, regions: Iterable[str], metrics: Mapping[str, Metric]
) -> None:
    """Refuse scores that nobody asked for, and values that a metric cannot have."""
    known = {*regions, ALL_CLASSES}
    told = [*(row[1:3] for row in scores.rows), *(each[:2] for each in scores.spreads)]
    if not all(region in known and name in metrics for region, name in told):
        raise PayloadError("it has scores of regions or metrics that nobody asked for")
    if not all(metrics[name].possible(value) for _, _, name, value, _ in scores.rows):
        raise PayloadError("it has scores that the metric cannot have")


@dataclass(frozen=True)
class Signature:
    """What a message consists of, without its values."""

    weights: frozenset[tuple[str, tuple[int, ...]]]
    extras: tuple[tuple[str, Shape], ...]

    @classmethod
    def of(cls, message: Message) -> "Signature":
        """The signature of a message."""
        named = sorted(message.extras.items())
        extras = tuple((name, (str(each.dtype), tuple(each.shape))) for name, each in named)
        return cls(frozenset(message.weights.layout.shapes), extras)


def conflicts(signatures: Mapping[str, Signature], shared: Weights) -> dict[str, str]:
    """The sites whose messages are unlike most others, and in what."""
    whole = frozenset(shared.layout.shapes)
    counts = Counter(each.weights for each in signatures.values())
    usual = max(counts, key=lambda each: (counts[each], each == whole), default=whole)
    like = [each.extras for each in signatures.values() if each.weights == usual]
    votes = Counter(extra for extras in like for extra in extras).most_common()
    shapes = {name: shape for (name, shape), _ in reversed(votes)}
    found = {}
    for site, each in signatures.items():
        weights = sorted({name for name, _ in each.weights ^ usual})
        extras = [name for name, shape in each.extras if shapes.get(name, shape) != shape]
        if weights:
            different = listed(weights, most=3)
            found[site] = f"weights that differ from the other sites' in name or shape: {different}"
        elif extras:
            found[site] = f"extras that differ from the other sites': {listed(extras, most=3)}"
    return found


def miscounted(steps: Mapping[str, float], images: Mapping[str, int]) -> dict[str, str]:
    """The sites whose steps are neither, as steps nor for each image, like the others', of three.

    All have the same budget, in steps or in passes over their images; no steps count for nothing.
    """
    steps = {site: count for site, count in steps.items() if count}
    if len(steps) < 3:
        return {}
    rates = {site: count / max(1, images[site]) for site, count in steps.items()}
    factors = {site: [_over_median(each, site) for each in (steps, rates)] for site in steps}
    return {
        site: f"{steps[site]:.0f} steps behind it, which the other sites' do not explain"
        for site, each in factors.items()
        if min(each) > UNLIKE or max(each) < 1 / UNLIKE
    }


def _over_median(values: Mapping[str, float], site: str) -> float:
    return values[site] / median(values.values())


def length_of_change(weights: Weights, sent: Weights) -> float:
    """The L2 norm of what a site changed in the weights it was sent."""
    both = weights.names & sent.names
    change = weights.pick(both).flat.cpu().double() - sent.pick(both).flat.cpu().double()
    return float(change.norm()) if weights.pick(both).layout == sent.pick(both).layout else 0.0


def length_of_extras(message: Message) -> float:
    """The L2 norm of all extras but those that are encrypted."""
    real = (each for each in message.extras.values() if each.is_floating_point())
    return math.hypot(*(float(each.double().norm()) for each in real))


def strays(lengths: Mapping[str, float], most: float, what: str) -> dict[str, str]:
    """The sites where this is longer than `most` times the median, where there are three."""
    usual = median(lengths.values()) if len(lengths) > 2 else 0.0
    return {
        site: f"{what} {length / usual:.0f} times as long as the median one"
        for site, length in lengths.items()
        if usual and length > most * usual
    }
