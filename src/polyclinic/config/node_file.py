"""A site's own file, node.toml: where its data lie, whom it talks to and what it agrees to."""

import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from polyclinic.config.checking import check
from polyclinic.config.data_settings import LabelKind
from polyclinic.config.mistakes import ConfigError, Mistake
from polyclinic.config.reading import make_absolute, read_toml
from polyclinic.config.section import (
    AtLeastOne,
    Count,
    Device,
    FolderName,
    Positive,
    Section,
    UnlessInsecure,
    unique,
)
from polyclinic.config.tables import Tables, package_name


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
    """Host and port of the coordinator."""
    insecure: bool = False
    """No encryption and no authentication, for trials only."""
    ca: UnlessInsecure[Path] = None
    """Certificate of the consortium's authority; needed unless insecure."""
    key: UnlessInsecure[Path] = None
    """The site's private key; needed unless insecure."""

    @property
    def host(self) -> str:
        """The name or number of the server alone."""
        return split_address(self.address)[0]


class Permissions(Section):
    """What the site agrees to; messages and settings beyond it are refused.

    Parts, extras and methods are names, in which * stands for anything. Private weights leave only
    where the site agrees to `disclose` them to the others, as calibration needs. Extras that are
    made from images ("spectrum") leave only where `extras` names them: * does not stand for those.
    Of what installed packages offer to studies, only that of these `packages` may be used.
    """

    studies: tuple[str, ...] = ()
    """Hashes of studies approved in advance; "*" is any within these bounds, default none."""
    iterations: AtLeastOne = 1000
    """The largest `iterations` that a study may ask for."""
    epochs: AtLeastOne = 20
    """The largest `epochs` that a study may ask for."""
    parts: Names = ("*",)
    """Parts of the network that may leave."""
    extras: Names = ("*",)
    """Extras that may leave."""
    disclose: bool = False
    """Whether private weights may go to the other sites, as calibration and `cross_site` need."""
    recipients: tuple[str, ...] = ()
    """Keys of the sites to which that may be encrypted; by default whichever the server names."""
    methods: Names = ("*",)
    """Methods that the site takes part in."""
    packages: tuple[Annotated[str, AfterValidator(package_name)], ...] = ()
    """Installed packages, beside Polyclinic, whose code a study may use here."""
    weights: tuple[Path, ...] = ()
    """Files of weights here that a study may start from; it names them by their SHA-256."""
    rounds: AtLeastOne = 1000
    """The largest `federation.rounds` that a study may ask for."""
    batch: AtLeastOne = 4
    """The smallest `training.batch`: the statistics of a batch of one image show that image."""
    learning_rate: Positive = 0.1
    """The largest learning rate, that of `training` or of a method's own."""
    resolution: AtLeastOne = 1024
    """The largest side, in pixels, to which images may be brought."""
    augmentation: bool = True
    """Whether training must vary its images (`training.augmentation`)."""
    network_millions: Positive = 50.0
    """The most weights of the network, in millions."""
    validations: AtLeastOne = 20
    """How often a run may validate, and how many other sites' models it may have scored here."""
    scores: Literal["cases", "mean"] = "mean"
    """`mean`: of scores only means and spreads leave; `cases`: those of each case; all rounded."""
    cases: AtLeastOne = 5
    """The fewest training cases with which the site takes part."""
    repeats: AtLeastOne = 10
    """How often in a run a stage or scores may be asked for again with another message or noise."""
    message_megabytes: Positive = 500.0
    """The largest message that may come or go, in megabytes of 10⁶ bytes."""


class PrivacySettings(Section):
    """How an update is clipped (L2 norm) and blurred (noise multiplier) before it leaves.

    The defaults give ten updates an ε of 7.5, and were seen to leave a model where only the last
    layer is shared. Where all weights are, no noise with a small ε does.
    """

    clip: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.02
    """Bound on the L2 norm of an update."""
    noise: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 2.0
    """Standard deviation of the noise, as a multiple of `clip`."""
    delta: Annotated[float, Field(gt=0, lt=1)] = 1e-5
    """The δ for which the ledger states ε."""
    statistics: bool = False
    """Whether running statistics of norm layers may leave, clipped and blurred like weights."""


class NodeFile(Section):
    """All of a node.toml, its paths absolute."""

    name: FolderName
    """The site's name in the study."""
    data: Path
    """The site folder, relative to this file."""
    labels: LabelKind | None = None
    """What the site trains on, in place of what its site.toml says."""
    device: Device = "auto"
    """`auto` is CUDA where there is one, else the CPU."""
    threads: Count = 0
    """Threads of torch; 0 is what OMP_NUM_THREADS says, else all cores."""
    state: Path = Path("state")
    """Where private weights, memory and the ledger are kept."""
    server: ServerAddress
    """How to reach the coordinator."""
    allow: Permissions = Field(default_factory=Permissions)
    """What the site agrees to."""
    privacy: PrivacySettings | None = None
    """Clipping and noise; off by default."""


def load_node_file(path: str | Path, kinds: Iterable[str] | None = None) -> NodeFile:
    """The settings of a node.toml; ConfigError lists all mistakes.

    Paths in it are relative to the file; `kinds`, where given, are the labels it may name.
    """
    file = Path(path)
    table = {"state": "state"} | read_toml(file)
    mistakes: list[Mistake] = []
    make_absolute(table, ("data", "state"), file.parent, mistakes)
    make_absolute(table.get("server"), ("ca", "key"), file.parent, mistakes, "server.")
    make_absolute(table.get("allow"), ("weights",), file.parent, mistakes, "allow.")
    context = None if kinds is None else Tables(kind=dict.fromkeys(kinds))
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
