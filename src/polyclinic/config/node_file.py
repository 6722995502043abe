"""A site's own file, node.toml: where its data lie, whom it talks to and what it agrees to."""

import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated

from pydantic import AfterValidator, Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from polyclinic.config.checking import check
from polyclinic.config.loading import read_toml
from polyclinic.config.mistakes import ConfigError, Mistake
from polyclinic.config.paths import make_absolute
from polyclinic.config.section import (
    AtLeastOne,
    Count,
    Device,
    FolderName,
    Positive,
    Section,
    unique,
)
from polyclinic.config.study import LabelKind


def split_address(address: str) -> tuple[str, int]:
    """The host and the port of an address; ValueError where it is none."""
    found = re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+):(\d{1,5})", address)
    if not found or not 0 < int(found[2]) < 65536:
        raise ValueError("must be a host and a port, such as fl.example.org:443")
    return found[1].strip("[]"), int(found[2])


def _is_address(address: str) -> str:
    split_address(address)
    return address


Names = Annotated[tuple[str, ...], AfterValidator(unique)]
Address = Annotated[str, AfterValidator(_is_address)]


class ServerAddress(Section):
    """Whom the site talks to, and by what it knows the server and the server knows it."""

    address: Address
    insecure: bool = False
    ca: Annotated[Path | None, Field(validate_default=True)] = None
    key: Annotated[Path | None, Field(validate_default=True)] = None

    @property
    def host(self) -> str:
        """The name or number of the server alone."""
        return split_address(self.address)[0]

    @field_validator("ca", "key")
    @classmethod
    def _there_unless_insecure(cls, path: Path | None, info: ValidationInfo) -> Path | None:
        if path is None and not info.data.get("insecure"):
            raise PydanticCustomError("missing", "is required")
        return path


class Permissions(Section):
    """What the site agrees to; messages and settings beyond it are refused.

    Parts, extras and methods are names, in which * stands for anything. Private weights leave only
    where the site agrees to `disclose` them to the others, as calibration needs. Extras that are
    made from images ("spectrum") leave only where `extras` names them: * does not stand for those.
    """

    iterations: AtLeastOne = 1000
    epochs: AtLeastOne = 20
    parts: Names = ("*",)
    extras: Names = ("*",)
    disclose: bool = False
    methods: Names = ("*",)
    cases: AtLeastOne = 5
    message_megabytes: Positive = 500.0


class PrivacySettings(Section):
    """How an update is clipped (L2 norm) and blurred (noise multiplier) before it leaves."""

    clip: Positive
    noise: Annotated[float, Field(ge=0)]
    delta: Annotated[float, Field(gt=0, lt=1)] = 1e-5


class NodeFile(Section):
    """All of a node.toml, its paths absolute."""

    name: FolderName
    data: Path
    labels: LabelKind | None = None
    device: Device = "auto"
    threads: Count = 0
    state: Path = Path("state")
    server: ServerAddress
    allow: Permissions = Field(default_factory=Permissions)
    privacy: PrivacySettings | None = None


def load_node_file(path: str | Path, kinds: Iterable[str] | None = None) -> NodeFile:
    """The settings of a node.toml; ConfigError lists all mistakes.

    Paths in it are relative to the file; `kinds`, where given, are the labels it may name.
    """
    file = Path(path)
    table = {"state": "state"} | read_toml(file)
    mistakes: list[Mistake] = []
    make_absolute(table, ("data", "state"), file.parent, mistakes)
    make_absolute(table.get("server"), ("ca", "key"), file.parent, mistakes, "server.")
    context = None if kinds is None else SimpleNamespace(kind=tuple(kinds))
    checked = check(NodeFile, table, "", mistakes, context=context)
    if mistakes or checked is None:
        raise ConfigError(file, [_in_this_file(mistake) for mistake in mistakes])
    return checked


def _in_this_file(mistake: Mistake) -> Mistake:
    """The mistake; for a key at the wrong place with the section of this file that has it."""
    if not mistake.allowed or (mistake.meant and "." not in mistake.meant):
        return mistake
    key = mistake.key.rpartition(".")[2]
    sections: dict[str, type[Section]] = {
        "server": ServerAddress,
        "allow": Permissions,
        "privacy": PrivacySettings,
    }
    homes = [name for name, section in sections.items() if key in section.model_fields]
    return replace(mistake, meant=f"{homes[0]}.{key}" if homes else "")
