"""The coordinator's own file, coordinator.toml: where it listens, and the keys of the sites."""

from pathlib import Path
from typing import Annotated

from pydantic import Field

from polyclinic.config.checking import check
from polyclinic.config.mistakes import ConfigError, Mistake
from polyclinic.config.reading import make_absolute, read_toml
from polyclinic.config.section import FolderName, Section, UnlessInsecure


class ServerCertificates(Section):
    """The files by which the server proves who it is."""

    ca: Path
    """Certificate of the consortium's authority."""
    certificate: Path
    """The server's own certificate."""
    key: Path
    """Private key of that certificate."""


class CoordinatorFile(Section):
    """All of a coordinator.toml, its paths absolute; sites talk to the proxy before the server."""

    host: str = "127.0.0.1"
    """Address that the SuperLink listens on."""
    port: Annotated[int, Field(ge=1, le=65535)] = 8000
    """Port that the SuperLink listens on."""
    state: Path = Path("state")
    """Where the SuperLink keeps its state."""
    insecure: bool = False
    """No encryption and no authentication, for trials only."""
    certificates: UnlessInsecure[ServerCertificates] = None
    """The server's certificates; needed unless insecure."""
    keys: dict[FolderName, Path] = Field(default_factory=dict)
    """Site name to the file of its public key."""


def load_coordinator_file(path: str | Path) -> CoordinatorFile:
    """The settings of a coordinator.toml, its paths relative to it; ConfigError lists mistakes."""
    file = Path(path)
    table = {"state": "state"} | read_toml(file)
    mistakes: list[Mistake] = []
    make_absolute(table, ("state",), file.parent, mistakes)
    for section in ("certificates", "keys"):
        make_absolute(table.get(section), None, file.parent, mistakes, f"{section}.")
    checked = check(CoordinatorFile, table, "", mistakes)
    if mistakes or checked is None:
        raise ConfigError(file, mistakes)
    return checked
