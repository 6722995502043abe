"""What runs were set to, as plain names and values, and in what they differ."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from polyclinic.report.reading import MethodRuns

Flat = Mapping[str, Any]
OF_A_RUN = frozenset({"seeds", "data.fold"})  # what runs of one method differ in
_NOT_COMPARED = ("name", "seeds", "engine", "method.title", "data.fold")
_OFF = (False, 0, "none", "", None)


def flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Settings by their dotted names; of a list of tables its entries by their number."""
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def differing(settings: Sequence[Flat], expected: Collection[str] = ()) -> list[str]:
    """The names whose values are not all the same, but those that are expected to differ.

    Expected is a setting by its name, or a whole table.
    """
    keys = dict.fromkeys(key for each in settings for key in each)
    return [
        key
        for key in keys
        if not {key, key.split(".")[0]} & set(expected)
        and any(each.get(key) != settings[0].get(key) for each in settings)
    ]


def of_method(method: MethodRuns) -> dict[str, Any]:
    """All that may tell a method's runs from another's: its own settings and the study's.

    Its own are called `method.…`; finishing steps are told by their names.
    """
    settings = dict(method.runs[0].settings)
    entries = settings.pop("method", [{}])
    own = dict(entries[0] if isinstance(entries, Sequence) and entries else {})
    own["then"] = " + ".join(step.get("name", "?") for step in own.get("then") or ())
    found = {**dict(flat(settings)), **dict(flat(own, "method."))}
    return {
        key: value
        for key, value in found.items()
        if not any(key == each or key.startswith(f"{each}.") for each in _NOT_COMPARED)
    }


def is_switch(values: Sequence[Any]) -> bool:
    """Whether a setting is either off or has one and the same value."""
    on = [value for value in values if not is_off(value)]
    return 0 < len(on) < len(values) and all(value == on[0] for value in on)


def is_off(value: Any) -> bool:
    """Whether a value means that something is not done."""
    return any(value is off or (value == off and type(value) is type(off)) for off in _OFF) or (
        isinstance(value, float) and value == 0
    )


def short(key: str) -> str:
    """A setting's name without where it stands."""
    return key.removeprefix("method.").replace("_", " ")
