"""What a study can name: tables of tasks, networks, methods and others, and files beside it."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Origin:
    """Where something that a study names comes from: the program itself, a package or a file."""

    package: str = ""
    version: str = ""
    file: Path | None = None

    def __str__(self) -> str:
        if self.file:
            return f"file {self.file}"
        return f"{self.package} {self.version}" if self.package else "built in"


@dataclass(frozen=True)
class Tables:
    """All that a study can name: methods, finishing steps and networks are callables.

    Looking into a table may raise a ValueError that says why the entry cannot be used. `open_file`
    gives what a name such as mine.py:FedMine means, where files may be opened at all.
    """

    task: Mapping[str, Any] = field(default_factory=dict)
    network: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    method: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    finish: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    kind: Mapping[str, Any] = field(default_factory=dict)
    metric: Mapping[str, Any] = field(default_factory=dict)
    loss: Mapping[str, Any] = field(default_factory=dict)
    origins: Mapping[tuple[str, str], Origin] = field(default_factory=dict)  # table, name
    open_file: Callable[[str, str], Any] | None = None  # of name and table

    def find(self, table: str, name: str) -> tuple[Any, Origin]:
        """What has this name, and its origin; KeyError for nothing, ValueError where refused."""
        file = file_of(name)
        if file is None:
            return getattr(self, table)[name], self.origins.get((table, name), Origin())
        if self.open_file is None:
            raise ValueError("is code in a file, and across hospitals only installed code may run")
        return self.open_file(name, table), Origin(file=file)


def package_name(name: str) -> str:
    """A package's name in its one spelling: fed-mine for Fed_Mine."""
    return re.sub(r"[-_.]+", "-", name).lower()


def file_of(name: str) -> Path | None:
    """The file of a name such as mine.py:FedMine; None for the name of an entry of a table."""
    found = re.fullmatch(r"(.+\.py):\w+", name)
    return Path(found[1]) if found else None
