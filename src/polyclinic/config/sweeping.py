"""Sweeps: settings of a study that take several values, in all combinations."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from polyclinic.config.chosen import MethodChoice
from polyclinic.config.mistakes import Mistake
from polyclinic.config.overrides import Setting, entry_keys, leaves, shape
from polyclinic.config.printing import bare, literal
from polyclinic.config.tables import Tables
from polyclinic.config.titles import folder_of

Sweep = dict[str, tuple[Any, ...]]
Swept = Mapping[str, Mapping[str, Any]]  # a method's key in the file → what was set for it

_ELSEWHERE = {
    "name": "a study has one name",
    "seeds": "is a list itself",
    "method": "several methods are several [[method]] entries",
    "site": "the sites of a study are the same in all its runs",
    "data.leave_out": '"each" leaves every site out in turn',
    "data.fold": "every fold makes runs of its own where data.fold is not given",
}


def read_sweep(table: Any, mistakes: list[Mistake]) -> Sweep:
    """The values of each dotted key; a key may be quoted whole or be tables in tables."""
    if not isinstance(table, dict):
        example = '[sweep] with lines such as "training.iterations" = [10, 20]'
        mistakes.append(Mistake("sweep", f"must be a table: {example}", literal(table)))
        return {}
    found = {}
    for key, values in leaves("", table):
        problem = _problem(key, values)
        if problem:
            mistakes.append(Mistake(f"sweep.{key}", problem, literal(values)))
        else:
            found[key] = tuple(values)
    return found


def combinations(sweep: Sweep) -> Iterator[dict[str, Any]]:
    """One value for each key, in all ways; nothing where nothing is swept."""
    if sweep:
        for values in product(*sweep.values()):
            yield dict(zip(sweep, values, strict=True))


def put_values(
    study: dict[str, Any], values: Mapping[str, Any], tables: Tables, mistakes: list[Mistake]
) -> Swept:
    """Set the values in the file's tables, and tell for each method which of them are its own.

    What is not of a method is of all of them.
    """
    swept: dict[str, dict[str, Any]] = {key: {} for key in entry_keys(study["method"])}
    for key, value in values.items():
        setting = Setting(f"sweep.{key}", value, tables)
        setting.put(study, "", key)
        mistakes += setting.mistakes
        for method, own in swept.items():
            of_it = any(f"{changed}.".startswith(f"{method}.") for changed in setting.changed)
            if of_it or not key.startswith("method."):
                own[key] = value
    shape(study)
    return swept


def with_values(choice: MethodChoice) -> MethodChoice:
    """The method with the values that were set for it in its title."""
    if not choice.swept:
        return choice
    ends = [key.rpartition(".")[2] for key in choice.swept]
    told = ", ".join(
        f"{end if ends.count(end) == 1 else key}={bare(value)}"
        for end, (key, value) in zip(ends, choice.swept.items(), strict=True)
    )
    return choice.model_copy(update={"title": f"{choice.title} ({told})"})


def of_the_sweep(found: Iterable[Mistake], known: Sequence[Mistake]) -> Iterator[Mistake]:
    """The mistakes that come with swept values, each once, however many values have it."""
    told = set(known)
    for mistake in dict.fromkeys(found):
        if mistake not in told:
            yield replace(mistake, key=f"sweep.{mistake.key.removeprefix('sweep.')}")


def shared_folders(methods: Iterable[MethodChoice]) -> Iterator[Mistake]:
    """Titles that differ, but not in the names of their folders."""
    seen: dict[tuple[str, ...], str] = {}
    for title in dict.fromkeys(choice.title for choice in methods):
        other = seen.setdefault(folder_of(title), title)
        if other != title:
            problem = f"would have the same folder as {other}; sweep one of them in another study"
            yield Mistake("sweep", problem, literal(title))


def _problem(key: str, values: Any) -> str:
    if key in _ELSEWHERE:
        return f"cannot be swept: {_ELSEWHERE[key]}"
    if not isinstance(values, list) or not values:
        return "must be a list of the values to try"
    shown = [literal(value) for value in values]
    twice = [each for each in dict.fromkeys(shown) if shown.count(each) > 1]
    return f"has {', '.join(twice)} more than once" if twice else ""
