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
    return _told(method, {})


def of_methods(methods: Sequence[MethodRuns]) -> list[dict[str, Any]]:
    """The same of several, with the settings of finishing steps in which these differ."""
    steps: dict[str, list[Flat]] = {}
    for step in (step for method in methods for step in _own(method).get("then") or ()):
        steps.setdefault(step.get("name", "?"), []).append(dict(flat(step)))
    varied = {name: differing(settings) for name, settings in steps.items()}
    return [_told(method, varied) for method in methods]


def is_plain_fedavg(method: MethodRuns) -> bool:
    """Whether a row is the study's FedAvg with nothing of its own: what others are told by."""
    own = _own(method)
    return own.get("name") == "fedavg" and not any(
        own.get(key) for key in ("then", "labels", "weak", "weighting")
    )


def _told(method: MethodRuns, varied: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    settings = dict(method.runs[0].settings)
    settings.pop("method", None)
    training = dict(settings.pop("training", {}))
    own = _own(method)
    own["weak"] = own.pop("weak", None) or training.get("weak", {})  # the other has no effect
    training.pop("weak", None)
    steps = own.get("then") or ()
    own["then"] = " + ".join(_step(step, varied.get(step.get("name"), ())) for step in steps)
    found = {**dict(flat({**settings, "training": training})), **dict(flat(own, "method."))}
    return {
        key: value
        for key, value in found.items()
        if not any(key == each or key.startswith(f"{each}.") for each in _NOT_COMPARED)
    }


def _own(method: MethodRuns) -> dict[str, Any]:
    entries = method.runs[0].settings.get("method", [{}])
    return dict(entries[0] if isinstance(entries, Sequence) and entries else {})


def _step(step: Mapping[str, Any], varied: Sequence[str]) -> str:
    """A finishing step by its name, with those of its settings that vary."""
    values = dict(flat(step))
    told = ", ".join(f"{short(key)}={text_of(values.get(key))}" for key in varied)
    return f"{step.get('name', '?')} ({told})" if told else str(step.get("name", "?"))


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


def text_of(value: Any) -> str:
    """A value as tables print it."""
    if isinstance(value, bool):
        return "✓" if value else "–"
    if value in (None, "", "none"):
        return "–"
    return f"{value:g}" if isinstance(value, float) else str(value)
