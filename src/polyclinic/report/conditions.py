"""Which models stand in score tables, and under which conditions they were made."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

from polyclinic.report.folds import seeds_and_folds
from polyclinic.report.reading import Comparison, MethodRuns, Run
from polyclinic.report.words import enumeration

AS_TRAINED = ", as trained"
SAME = "as trained: the same scores"
MODELS = {
    "shared": "the model after the last average",
    "trained": "the model as its site trained it, before the last average",
}
_FOLDERS = {"folder", "source", "pretrained", "file"}  # of one machine


@dataclass(frozen=True)
class Conditions:
    """What a reader must know to compare a row with another: which model, how, with what."""

    model: str  # shared or trained
    weighting: str  # what sites counted by; "none" without an average
    seeds: tuple[int, ...]
    settings: str  # a hash of the start and of all settings but seeds, names and folders


def scored_rows(comparison: Comparison) -> tuple[MethodRuns, ...]:
    """The rows of score tables: for each method the models that its study has chosen to score.

    Where a method's models as trained score the same in every case, they are not shown twice.
    """
    return tuple(row for method in comparison.methods for row in _rows(method))


def ceilings_of(comparison: Comparison, rows: Sequence[MethodRuns]) -> frozenset[str]:
    """The rows that learned from full masks where others had weak labels: they rank with nobody."""
    return frozenset(row.title for row in rows if comparison.ceilings and row.on_full_masks)


def conditions_of(method: MethodRuns) -> Conditions:
    """What holds for all runs of a row."""
    first = method.runs[0]
    return Conditions(
        model=method.model,
        weighting=first.about.weighting or "none",
        seeds=tuple(sorted({run.about.seed for run in method.runs})),
        settings=_hash(sorted({_text(_settings(run)) for run in method.runs})),
    )


def told(rows: Sequence[MethodRuns]) -> str:
    """The conditions of all rows of a table in a few sentences."""
    found = {row.title: conditions_of(row) for row in rows}
    models = [MODELS[name] for name in MODELS if name in {each.model for each in found.values()}]
    averaged = {each: one for each, one in found.items() if one.weighting != "none"}
    ways = dict.fromkeys(one.weighting for one in averaged.values())
    by = [
        way
        if len(ways) == 1
        else f"{way} ({enumeration([t for t, o in averaged.items() if o.weighting == way])})"
        for way in ways
    ]
    return (
        f"Scored: {enumeration(models)}. Weighting: {enumeration(by) if by else 'none'}. "
        f"Seeds: {seeds_and_folds([run for row in rows for run in row.runs])}. "
        f"Settings: {_hash(sorted(each.settings for each in found.values()))}."
    )


def _rows(method: MethodRuns) -> tuple[MethodRuns, ...]:
    wanted = method.runs[0].settings.get("evaluation", {}).get("scores", "shared")
    if wanted == "shared" or not method.finished:
        return (method,)
    runs = tuple(run.as_trained() for run in method.runs)
    pairs = [(run, own) for run, own in zip(method.runs, runs, strict=True) if run.end]
    if all(not own.tested or own.tested == run.tested for run, own in pairs):
        return (replace(method, note=SAME),)
    trained = MethodRuns(f"{method.title}{AS_TRAINED}", runs, "trained")
    return (method, trained) if wanted == "both" else (trained,)


def _settings(run: Run) -> Any:
    """The settings that a result depends on, whatever the machine and the study's name.

    A file of weights counts by its fingerprint or, in older runs, by what was taken from it.
    """
    names = ("name", "seeds", "engine")
    kept = {key: each for key, each in run.settings.items() if key not in names}
    if kept.get("network", {}).get("pretrained"):
        kept["network"] = {**kept["network"], "start": run.about.start or run.about.pretrained}
    return _without_folders(kept)


def _without_folders(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {k: _without_folders(each) for k, each in value.items() if k not in _FOLDERS}
    return [_without_folders(each) for each in value] if isinstance(value, list) else value


def _hash(value: Any) -> str:
    return sha256(_text(value).encode()).hexdigest()[:8]


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)
