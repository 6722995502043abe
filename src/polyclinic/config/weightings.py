"""What sites count by in the average of a method, and the control where methods differ in it."""

from collections.abc import Iterator, Sequence
from typing import Any

from polyclinic.config.chosen import MethodChoice
from polyclinic.config.mistakes import Mistake
from polyclinic.config.printing import literal
from polyclinic.config.study import FederationSettings

AVERAGING = "fedavg"  # the method that other ones are compared with


def weighting_of(built: Any, own: str | None, federation: FederationSettings) -> str:
    """What sites count by with a method whose entry says `own`; empty where nothing is averaged.

    `paper` is what the method's authors took.
    """
    papers: str = getattr(built, "paper_weighting", "samples")
    if not papers or federation.combine != "mean":
        return ""
    said = own or federation.weighting
    return papers if said == "paper" else said


def check_weighting(
    key: str, built: Any, own: str | None, federation: FederationSettings
) -> Iterator[Mistake]:
    """What is wrong with the weighting that a method's entry gives."""
    if own is None or weighting_of(built, own, federation):
        return
    problem = "has no effect: the method averages nothing"
    if federation.combine != "mean":
        problem = f'has no effect with federation.combine = "{federation.combine}"; it needs "mean"'
    yield Mistake(f"{key}.weighting", problem, literal(own))


def with_uniform_row(
    methods: Sequence[MethodChoice], federation: FederationSettings
) -> tuple[MethodChoice, ...]:
    """The methods and, where some count sites alike and FedAvg does not, FedAvg that does too."""
    if not federation.uniform_row or not (alike := _alike(methods, federation)):
        return tuple(methods)
    plain = [each for each in methods if each.name == AVERAGING and not each.then]
    title = f"{plain[0].title}, uniform" if plain else ""
    taken = any(each in alike for each in plain) or title in {each.title for each in methods}
    if not plain or taken:
        return tuple(methods)
    first = plain[0]
    control = first.model_copy(update={"title": title, "weighting": "uniform"})
    place = list(methods).index(first) + 1
    return (*methods[:place], control, *methods[place:])


def uniform_row_told(methods: Sequence[MethodChoice], federation: FederationSettings) -> str:
    """Why FedAvg stands there twice, in a sentence; empty where it does not."""
    alike = _alike(methods, federation)
    plain = [each for each in methods if each.name == AVERAGING and not each.then]
    control = [each.title for each in plain if each in alike]
    others = [each.title for each in alike if each not in plain]
    if not (federation.uniform_row and control and others) or len(control) == len(plain):
        return ""
    beside = next(each.title for each in plain if each not in alike)
    return (
        f"{control[0]} stands beside {beside} because sites count alike in {', '.join(others)}; "
        "federation.uniform_row = false leaves it out"
    )


def _alike(
    methods: Sequence[MethodChoice], federation: FederationSettings
) -> tuple[MethodChoice, ...]:
    return tuple(
        each
        for each in methods
        if weighting_of(each.built, each.weighting, federation) == "uniform"
    )
