"""Choices from the tables: a name becomes a Choice with all its settings checked and filled in."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from polyclinic.config.callables import GIVEN, Tables, completed, settings_model
from polyclinic.config.checking import addresses, check
from polyclinic.config.mistakes import Mistake, unknown
from polyclinic.config.printing import literal
from polyclinic.config.section import AtLeastOne, Section, Title
from polyclinic.config.study import Choice, LabelKind, MethodChoice, NetworkChoice
from polyclinic.config.titles import default_title, told_apart

AROUND_CHOICE: Mapping[str, Any] = {"name": str}
AROUND_NETWORK: Mapping[str, Any] = {"name": str, "pretrained": Path | None}
AROUND_METHOD: Mapping[str, Any] = {
    "name": str,
    "title": Title | None,
    "labels": LabelKind | None,
    "then": Any,
}
"""The keys of an entry that are not settings of what it names, and their types."""


@dataclass(frozen=True)
class ChoiceReader:
    """Reads entries of a study, each a table with a name; adds what is wrong to `mistakes`."""

    tables: Tables
    mistakes: list[Mistake]

    def task(self, entry: Any) -> Choice | None:
        """The task that an entry names; its resolution is the task's own unless given."""
        task = self._look_up(entry, "task", "task")
        checked = check(_TaskEntry, entry, "task", self.mistakes) if task is not None else None
        if checked is None:
            return None
        own = getattr(task, "resolution", None)
        resolution = checked.resolution or (own if isinstance(own, int) else None)
        return Choice(name=checked.name, settings={"resolution": resolution})

    def network(self, entry: Any) -> NetworkChoice | None:
        """The network that an entry names; the papers' U-Net if it names none."""
        named = {"name": "unet", **(entry or {})} if isinstance(entry, dict | None) else entry
        network = self._look_up(named, "network", "network")
        if network is None:
            return None
        settings = self._settings(network, named, "network", "network", AROUND_NETWORK)
        if settings is None:
            return None
        pretrained = named.get("pretrained")
        return NetworkChoice(name=named["name"], settings=settings, pretrained=pretrained)

    def methods(self, entries: list[Any]) -> tuple[MethodChoice, ...]:
        """The methods that the entries name, each with its own title; wrong ones are left out."""
        if not entries:
            names = tuple(self.tables.method)
            self.mistakes.append(Mistake("method", "is required", allowed=names))
        choices = {}
        written = set()
        for key, entry in _by_key("method", entries).items():
            choice = self._method(entry, key)
            if choice is not None:
                choices[key] = choice
                written |= {key} if "title" in entry else set()
        return tuple(told_apart(choices, written, self.mistakes))

    def _method(self, entry: Any, key: str) -> MethodChoice | None:
        method = self._look_up(entry, key, "method")
        then = self._finishing_steps(entry, key)
        if method is None:
            return None
        settings = self._settings(method, entry, key, "method", AROUND_METHOD)
        if settings is None or then is None:
            return None
        name = entry["name"]
        pieces = [(name, method), *((each.name, self.tables.finish[each.name]) for each in then)]
        labels = entry.get("labels")
        title = entry.get("title") or default_title(pieces, labels)
        return MethodChoice(name=name, settings=settings, title=title, labels=labels, then=then)

    def _finishing_steps(self, entry: Any, key: str) -> tuple[Choice, ...] | None:
        entries = entry.get("then", []) if isinstance(entry, dict) else []
        choices = [
            self._choice(each, each_key, "finish")
            for each_key, each in _by_key(f"{key}.then", entries).items()
        ]
        found = tuple(choice for choice in choices if choice is not None)
        return found if len(found) == len(choices) else None

    def _choice(self, entry: Any, key: str, sort: str) -> Choice | None:
        thing = self._look_up(entry, key, sort)
        if thing is None:
            return None
        settings = self._settings(thing, entry, key, sort, AROUND_CHOICE)
        return None if settings is None else Choice(name=entry["name"], settings=settings)

    def _look_up(self, entry: Any, key: str, sort: str) -> Any:
        """What an entry names in the table of this sort; None after saying why it is nothing."""
        table = getattr(self.tables, sort)
        noun = "finishing step" if sort == "finish" else sort
        names = tuple(table)
        name = entry.get("name") if isinstance(entry, dict) else None
        if isinstance(name, str) and name in table:
            return table[name]
        if entry is None:
            mistake = Mistake(key, "is required", allowed=names)
        elif not isinstance(entry, dict):
            problem = f"must be the name of a {noun} or a table with a name"
            mistake = Mistake(key, problem, literal(entry), names)
        elif name is None:
            mistake = Mistake(f"{key}.name", "is required", allowed=names)
        else:
            problem = f"there is no such {noun}"
            mistake = unknown(f"{key}.name", problem, literal(name), name, names)
        self.mistakes.append(mistake)
        return None

    def _settings(
        self,
        thing: Callable[..., Any],
        entry: dict[str, Any],
        key: str,
        sort: str,
        around: Mapping[str, Any],
    ) -> dict[str, Any] | None:
        given = GIVEN.get(sort, frozenset())
        model = settings_model(thing, given, around)
        checked = check(model, completed(thing, entry), key, self.mistakes, context=self.tables)
        if checked is None:
            return None
        fields = type(checked).model_fields.items()
        settings = {field.alias: getattr(checked, name) for name, field in fields if field.alias}
        if isinstance(thing, type) and is_dataclass(thing) and not given:
            self._construct(thing, settings, key)
        return settings

    def _construct(self, thing: Callable[..., Any], settings: dict[str, Any], key: str) -> None:
        """Lets a dataclass refuse settings that do not go together."""
        try:
            thing(**settings)
        except ValueError as error:
            self.mistakes.append(Mistake(key, str(error)))


class _TaskEntry(Section):
    name: str
    resolution: Annotated[AtLeastOne, Field(multiple_of=16)] | None = None


def _by_key(key: str, entries: list[Any]) -> dict[str, Any]:
    keys = [f"{key}{address}" for address in addresses(entries)]
    return dict(zip(keys, entries, strict=True))
