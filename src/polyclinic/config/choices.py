"""Choices from the tables: a name and its settings become what they stand for."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from polyclinic.config.callables import GIVEN, completed, settings_model
from polyclinic.config.checking import addresses, check
from polyclinic.config.chosen import (
    Choice,
    Factory,
    MethodChoice,
    NetworkChoice,
    TaskChoice,
    Weighting,
)
from polyclinic.config.data_settings import LabelKind
from polyclinic.config.mistakes import Mistake, multiples_near, unknown
from polyclinic.config.printing import literal
from polyclinic.config.section import Title
from polyclinic.config.study import FederationSettings
from polyclinic.config.tables import Origin, Tables
from polyclinic.config.titles import default_title, told_apart
from polyclinic.config.weak_settings import WeakSettings
from polyclinic.config.weightings import (
    check_weighting,
    weighting_of,
    with_uniform_row,
)

AROUND_CHOICE: Mapping[str, Any] = {"name": str}
AROUND_NETWORK: Mapping[str, Any] = {"name": str, "pretrained": Path | None}
AROUND_METHOD: Mapping[str, Any] = {
    "name": str,
    "title": Title | None,
    "labels": LabelKind | None,
    "weak": WeakSettings | None,
    "weighting": Weighting | None,
    "then": Any,
}
"""The keys of an entry that are not settings of what it names, and their types."""


@dataclass(frozen=True)
class ChoiceReader:
    """Reads entries of a study, each a table with a name; adds what is wrong to `mistakes`."""

    tables: Tables
    mistakes: list[Mistake]

    def network(self, entry: Any) -> NetworkChoice | None:
        """The network that an entry names; the papers' U-Net if it names none."""
        named = {"name": "unet", **(entry or {})} if isinstance(entry, dict | None) else entry
        found = self._look_up(named, "network", "network")
        if found is None:
            return None
        make, origin = found
        settings = self._settings(make, named, "network", "network", AROUND_NETWORK)
        if settings is None:
            return None
        return NetworkChoice(
            name=named["name"],
            built=Factory(make, settings),
            origin=origin,
            pretrained=named.get("pretrained"),
        )

    def methods(
        self,
        entries: list[Any],
        weak: WeakSettings,
        federation: FederationSettings,
        swept: Mapping[str, Mapping[str, Any]],
    ) -> tuple[MethodChoice, ...]:
        """The methods that the entries name, each with its own title; wrong ones are left out.

        Terms for weak labels are a method's own, unless the study says otherwise (`weak`), or the
        method's entry does. FedAvg may be added as a control (`federation.uniform_row`). What a
        sweep has set for an entry stays with its method.
        """
        if not entries:
            names = tuple(self.tables.method)
            self.mistakes.append(Mistake("method", "is required", allowed=names))
        choices = {}
        written = set()
        for key, entry in _by_key("method", entries).items():
            choice = self._method(entry, key, weak, federation)
            if choice is not None:
                choices[key] = choice.model_copy(update={"swept": swept.get(key, {})})
                written |= {key} if "title" in entry else set()
        titled = told_apart(choices, written, self.mistakes)
        found = [
            each.model_copy(update={"weak": None}) if each.weak == weak else each for each in titled
        ]
        return with_uniform_row(found, federation)

    def plain(self, table: str, names: Iterable[str]) -> tuple[Choice, ...]:
        """What names without settings stand for, which must be in the table."""
        found = {name: self.tables.find(table, name) for name in names}
        return tuple(
            Choice(name=name, built=thing, origin=origin) for name, (thing, origin) in found.items()
        )

    def _method(
        self, entry: Any, key: str, weak: WeakSettings, federation: FederationSettings
    ) -> MethodChoice | None:
        method = self._choice(entry, key, "method", AROUND_METHOD)
        entries = entry.get("then", []) if isinstance(entry, dict) else []
        steps = [
            self._choice(each, each_key, "finish", AROUND_CHOICE)
            for each_key, each in _by_key(f"{key}.then", entries).items()
        ]
        then = tuple(step for step in steps if step is not None)
        if method is None or len(then) < len(steps):
            return None
        labels, weighting = entry.get("labels"), entry.get("weighting")
        self.mistakes.extend(check_weighting(key, method.built, weighting, federation))
        counts = weighting_of(method.built, weighting, federation)
        own = counts if counts != weighting_of(method.built, None, federation) else None
        pieces = [piece.built for piece in (method, *then)]
        title = entry.get("title") or default_title(pieces, labels, own)
        terms = weak.changed(
            getattr(method.built, "weak_terms", dict)(), weak.written, entry.get("weak") or {}
        )
        around = {"title": title, "labels": labels, "weighting": weighting}
        return MethodChoice(**dict(method), **around, weak=terms, then=then)

    def _choice(self, entry: Any, key: str, table: str, around: Mapping[str, Any]) -> Choice | None:
        """The entry built; None after saying what is wrong, also where settings do not fit."""
        found = self._look_up(entry, key, table)
        if found is None:
            return None
        thing, origin = found
        settings = self._settings(thing, entry, key, table, around)
        if settings is None:
            return None
        try:
            return Choice(name=entry["name"], built=thing(**settings), origin=origin)
        except ValueError as error:
            self.mistakes.append(Mistake(key, str(error)))
            return None

    def _look_up(self, entry: Any, key: str, table: str) -> tuple[Any, Origin] | None:
        """What an entry names in this table; None after saying why it is nothing."""
        noun = "finishing step" if table == "finish" else table
        names = tuple(getattr(self.tables, table))
        name = entry.get("name") if isinstance(entry, dict) else None
        if entry is None:
            mistake = Mistake(key, "is required", allowed=names)
        elif not isinstance(entry, dict):
            problem = f"must be the name of a {noun} or a table with a name"
            mistake = Mistake(key, problem, literal(entry), names)
        elif name is None:
            mistake = Mistake(f"{key}.name", "is required", allowed=names)
        else:
            try:
                return self.tables.find(table, str(name))
            except KeyError:
                problem = f"there is no such {noun}"
                mistake = unknown(f"{key}.name", problem, literal(name), name, names)
            except ValueError as error:
                mistake = Mistake(f"{key}.name", str(error), literal(name))
        self.mistakes.append(mistake)
        return None

    def _settings(
        self,
        thing: Callable[..., Any],
        entry: dict[str, Any],
        key: str,
        table: str,
        around: Mapping[str, Any],
    ) -> dict[str, Any] | None:
        model = settings_model(thing, GIVEN.get(table, frozenset()), around)
        checked = check(model, completed(thing, entry), key, self.mistakes, context=self.tables)
        if checked is None:
            return None
        fields = type(checked).model_fields.items()
        return {field.alias: getattr(checked, name) for name, field in fields if field.alias}


def fitting(task: TaskChoice, network: NetworkChoice, mistakes: list[Mistake]) -> None:
    """Tells of a side that the network cannot take: it states its divisor."""
    divisor = getattr(network.built.make, "divisor", 1)
    # With tiles whole images pass, too: when pictures for the report are drawn.
    for key, size in (("resolution", task.built.resolution), ("tile", task.built.tile)):
        if size % divisor:
            name, near = network.name, multiples_near(size, divisor)
            problem = f"must be a multiple of {divisor} for the network {name}; try {near}"
            mistakes.append(Mistake(f"task.{key}", problem, literal(size)))


def _by_key(key: str, entries: list[Any]) -> dict[str, Any]:
    keys = [f"{key}{address}" for address in addresses(entries)]
    return dict(zip(keys, entries, strict=True))
