"""All that a study can name: what is built in, what installed packages offer, and files beside it.

Packages offer things through entry points in the groups `polyclinic.methods`, `polyclinic.networks`
and so on; `GROUPS` has them all. Code of a package runs only once a study names what it offers.
"""

import importlib
import inspect
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from polyclinic.config import Origin, Tables, file_of, package_name
from polyclinic.config.mistakes import did_you_mean
from polyclinic.data.tasks import TASKS, Task
from polyclinic.evaluation import METRICS, Metric
from polyclinic.federation.method import Method
from polyclinic.losses import LOSSES
from polyclinic.methods import FINISHING_STEPS, METHODS
from polyclinic.networks import NETWORKS
from polyclinic.weak import KINDS

BUILT_IN = Tables(
    task=TASKS,
    network=NETWORKS,
    method=METHODS,
    finish=FINISHING_STEPS,
    kind=KINDS,
    metric=METRICS,
    loss=LOSSES,
)
GROUPS: Mapping[str, str] = {
    "task": "polyclinic.tasks",
    "network": "polyclinic.networks",
    "method": "polyclinic.methods",
    "finish": "polyclinic.finishing_steps",
    "metric": "polyclinic.metrics",
    "loss": "polyclinic.losses",
}
"""Table → the group of entry points that adds to it."""

Check = Callable[[Any], bool]


def installed(allowed: Collection[str] | None = None) -> Tables:
    """The built-in tables and what installed packages add, of which `allowed` may be used.

    What is built in keeps its name, whoever offers something else by it: `left_out` tells.
    """
    tables = {table: _Table(table, found, allowed) for table, found in _offered().items()}
    origins = {
        (table, name): _origin(points[0])
        for table, entries in tables.items()
        for name, points in entries.offered.items()
        if name not in getattr(BUILT_IN, table)
    }
    return replace(BUILT_IN, **tables, origins=origins, open_file=outside)


def left_out() -> list[str]:
    """A sentence about each thing that a package offers by the name of something built in."""
    return [
        f"the {table} {name} of the package {_origin(point)} is left out: the name is taken"
        for table, found in _offered().items()
        for name, points in found.items()
        for point in points
        if name in getattr(BUILT_IN, table)
    ]


def outside(name: str, table: str, *, beside: Path = Path()) -> Any:
    """What a name such as mine.py:FedMine means in this table; ValueError says why nothing.

    A relative path is that of a file in the folder `beside`.
    """
    file = file_of(name)
    if file is None:
        raise ValueError(f"{name} is no name in a file, such as mine.py:FedMine")
    module = _module((beside / file.expanduser()).resolve())
    attribute = name.rpartition(":")[2]
    if not hasattr(module, attribute):
        names = [each for each, thing in vars(module).items() if _fits(thing, table)]
        known = f"; it has {', '.join(names)}" if names else ""
        hint = did_you_mean(attribute, names) or known
        raise ValueError(f"{file.name} has no {attribute}{hint}")
    return checked(getattr(module, attribute), table)


def things_in(file: Path) -> Iterator[tuple[str, str, Any]]:
    """Table, name and thing of all in a file that a study could name."""
    module = _module(file.resolve())
    for name, thing in vars(module).items():
        code = isinstance(thing, type) or inspect.isroutine(thing)
        if not name.startswith("_") and (not code or thing.__module__ == module.__name__):
            yield from ((table, name, thing) for table in _WANTED if _fits(thing, table))


def checked(thing: Any, table: str, name: str | None = None) -> Any:
    """The thing, if it can be in the table; tasks of packages have one name only."""
    if not _fits(thing, table):
        words = _WANTED[table][0] if table in _WANTED else "something that is built in"
        kind = "class" if isinstance(thing, type) else f"{type(thing).__name__},"
        raise ValueError(f"it is a {kind} and must be {words}")
    if isinstance(thing, Task) and name not in (None, thing.name):
        raise ValueError(f"its task is called {thing.name}")
    return thing


@dataclass(frozen=True, eq=False)
class _Table(Mapping[str, Any]):
    """A table whose entries from packages are imported when somebody takes one."""

    table: str
    offered: Mapping[str, list[EntryPoint]]
    allowed: Collection[str] | None

    @property
    def built_in(self) -> Mapping[str, Any]:
        return getattr(BUILT_IN, self.table)

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*self.built_in, *self.offered)))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __contains__(self, name: object) -> bool:
        return name in self.built_in or name in self.offered

    def __getitem__(self, name: str) -> Any:
        if name in self.built_in:
            return self.built_in[name]
        point, *others = self.offered[name]
        if others:
            all_of_them = " and ".join(str(_origin(each)) for each in (point, *others))
            raise ValueError(f"is offered by {all_of_them}; keep one of these packages")
        origin = _origin(point)
        if self.allowed is not None and origin.package not in self.allowed:
            raise ValueError(
                f"comes from the package {origin}, whose code does not run here: "
                "allow.packages of the site's node.toml does not name it"
            )
        try:
            return checked(point.load(), self.table, name)
        except Exception as error:  # anybody's code
            raise ValueError(f"comes from the package {origin}, but {_told(error)}") from error


def _offered() -> dict[str, dict[str, list[EntryPoint]]]:
    """The entry points of all packages, by table and name."""
    found: dict[str, dict[str, list[EntryPoint]]] = {table: {} for table in GROUPS}
    offers = entry_points()  # once for all groups: it reads a file of every package
    for table, group in GROUPS.items():
        for point in offers.select(group=group):
            found[table].setdefault(point.name, []).append(point)
    return found


def _origin(point: EntryPoint) -> Origin:
    assert point.dist is not None, "it was found in a package"
    return Origin(package=package_name(point.dist.name), version=point.dist.version)


def _module(file: Path) -> ModuleType:
    """The module of a file, under its own name so that other processes can import it, too."""
    if not file.is_file():
        near = [other.name for other in file.parent.glob("*.py")]
        raise ValueError(f"there is no file {file}{did_you_mean(file.name, near)}")
    folder = str(file.parent)
    if folder not in sys.path:
        sys.path.append(folder)
    importlib.invalidate_caches()
    try:
        module = importlib.import_module(file.stem)
    except Exception as error:  # anybody's code
        reason = f"{type(error).__name__}: {error}"
        raise ValueError(f"{file} cannot be imported: {reason}") from error
    found = getattr(module, "__file__", None) or "Python itself"
    if Path(found).resolve() != file:
        raise ValueError(f"{file} has the name of another module ({found}); give it another name")
    return module


def _fits(thing: Any, table: str) -> bool:
    return table in _WANTED and _WANTED[table][1](thing)


def _is_method(thing: Any) -> bool:
    derived = isinstance(thing, type) and issubclass(thing, Method)
    return derived and _parameters(thing) == {each.name for each in fields(thing)}


def _is_step(thing: Any) -> bool:
    return isinstance(thing, type) and is_dataclass(thing) and hasattr(thing, "stages")


def _is_network(thing: Any) -> bool:
    return callable(thing) and {"channels", "classes"} <= _parameters(thing)


def _is_loss(thing: Any) -> bool:
    form = type(thing).__module__ == "typing"  # such as Literal, which can be called, too
    function = callable(thing) and not isinstance(thing, type) and not form
    return function and len(_parameters(thing)) > 1 and not _is_network(thing)


_WANTED: Mapping[str, tuple[str, Check]] = {
    "task": ("a polyclinic.data.tasks.Task", lambda thing: isinstance(thing, Task)),
    "network": ("a class or function with the parameters channels and classes", _is_network),
    "method": ("a dataclass derived from polyclinic.federation.method.Method", _is_method),
    "finish": ("a dataclass with a method called stages", _is_step),
    "metric": ("a polyclinic.evaluation.Metric", lambda thing: isinstance(thing, Metric)),
    "loss": ("a function of logits and labels", _is_loss),
}


def _parameters(thing: Any) -> set[str]:
    try:
        return set(inspect.signature(thing).parameters)
    except (TypeError, ValueError):
        return set()


def _told(error: Exception) -> str:
    if type(error) is ValueError:
        return str(error)
    return f"it cannot be imported: {type(error).__name__}: {error}"
