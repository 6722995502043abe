"""The titles of methods: what they are called in tables and folders when nobody says."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from polyclinic.config.chosen import MethodChoice
from polyclinic.config.mistakes import Mistake
from polyclinic.config.printing import bare, literal


def default_title(pieces: Sequence[Any], *own: str | None) -> str:
    """A method and its finishing steps in one name, each by its class's title or name.

    What is the method's own in this study follows: labels that all sites train on, a weighting.
    """
    names = [getattr(piece, "title", "") or type(piece).__name__ for piece in pieces]
    return ", ".join([" + ".join(names), *filter(None, own)])


def told_apart(
    choices: Mapping[str, MethodChoice], written: set[str], mistakes: list[Mistake]
) -> Iterator[MethodChoice]:
    """The choices by key; equal titles that nobody wrote get the settings that differ."""
    titles = {key: _own_title(key, choices, written) for key in choices}
    folders = [folder_of(title) for title in titles.values()]
    for key, title in titles.items():
        if folders.count(folder_of(title)) == 1:
            yield choices[key].model_copy(update={"title": title})
        else:
            problem = "is the title of another method too, or names the same folder"
            advice = "give each method a title of its own"
            mistakes.append(Mistake(f"{key}.title", f"{problem}; {advice}", literal(title)))


def _own_title(key: str, choices: Mapping[str, MethodChoice], written: set[str]) -> str:
    title = choices[key].title
    same = {
        other: _flat(choice)
        for other, choice in choices.items()
        if folder_of(choice.title) == folder_of(title)
    }
    differences = _differences(same[key], list(same.values()))
    return f"{title} ({differences})" if differences and not same.keys() & written else title


def folder_of(title: str) -> tuple[str, ...]:
    """What is left of a title in the name of its folder: its words, whatever the case."""
    kept = "".join(letter if letter.isalnum() or letter == "." else " " for letter in title)
    return tuple(word for part in kept.casefold().split() if (word := part.strip(".")))


def _differences(own: Mapping[str, Any], all_settings: list[dict[str, Any]]) -> str:
    return ", ".join(
        f"{name}={bare(value)}"
        for name, value in own.items()
        if any(settings.get(name) != value for settings in all_settings)
    )


def _flat(choice: MethodChoice) -> dict[str, Any]:
    """All settings of a method and its finishing steps by dotted name."""
    flat = dict(_flatten("", choice.settings))
    flat |= {f"weak.{name}": value for name, value in choice.weak or ()}
    flat |= {"weighting": choice.weighting} if choice.weighting else {}
    for finish in choice.then:
        flat |= _flatten(f"{finish.name}.", finish.settings)
    return flat


def _flatten(prefix: str, settings: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in settings.items():
        if is_dataclass(value):
            inner = {field.name: getattr(value, field.name) for field in fields(value)}
            yield from _flatten(f"{prefix}{name}.", inner)
        else:
            yield f"{prefix}{name}", value
