"""Which settings the runs of a comparison share, and which they do not."""

from collections.abc import Iterator, Mapping
from typing import Any

from polyclinic.report.reading import Comparison, MethodRuns, Run


def same_settings(method: MethodRuns) -> list[tuple[Run, ...]]:
    """The runs of a method in groups that differ in nothing but their seed."""
    groups: list[list[Run]] = []
    for run in method.runs:
        for group in groups:
            if {**group[0].settings, "seeds": ()} == {**run.settings, "seeds": ()}:
                group.append(run)
                break
        else:
            groups.append([run])
    return [tuple(group) for group in groups]


def warnings(comparison: Comparison) -> Iterator[str]:
    """Where the runs are not as alike as a comparison needs them to be."""
    for method in comparison.methods:
        differing = _differing([dict(_flat(run.settings)) for run in method.runs], {"seeds"})
        if differing:
            yield f"The seeds of {method.title} differ in {', '.join(differing)}."
    firsts = [dict(_flat(method.runs[0].settings)) for method in comparison.methods]
    differing = _differing(firsts, {"seeds", "name", "method"})
    if differing:
        yield f"The methods were run with different {', '.join(differing)}."


def _differing(settings: list[dict[str, Any]], expected: set[str]) -> list[str]:
    keys = dict.fromkeys(key for each in settings for key in each)
    return [
        key
        for key in keys
        if key.split(".")[0] not in expected
        and any(each.get(key) != settings[0].get(key) for each in settings)
    ]


def _flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
