"""What the coordinator tells every site before it trains: task, classes, versions, known keys."""

from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from polyclinic.config import Study
from polyclinic.config.printing import plain
from polyclinic.engine.flower.commands import release
from polyclinic.engine.flower.limits import budgets_of
from polyclinic.runs import write_atomic

ADDRESS = "/polyclinic/study.json"
"""Where the proxy serves it: under the server's certificate, to everybody, hence no site's name."""


class Published(BaseModel):
    """The facts of a study that a site must agree with."""

    model_config = ConfigDict(frozen=True)  # further keys are a later version's, and harmless

    study: str
    task: str
    classes: tuple[str, ...]
    definition: dict[str, Any] | None = None  # the whole task, as in its file
    methods: tuple[str, ...]
    packages: dict[str, str] = {}  # whose code it needs beside Polyclinic, with versions
    budgets: dict[str, int]  # every setting called iterations or epochs
    polyclinic: str
    flower: str
    keys: tuple[str, ...] | None = None  # fingerprints of the sites' keys, in no site's order


def facts_of(study: Study, fingerprints: Iterable[str]) -> Published:
    """The facts of a study, with the versions installed here and the keys of its sites."""
    task = study.task.built
    return Published(
        study=study.name,
        task=task.name,
        classes=task.classes,
        definition=plain(task.settings),
        methods=tuple(dict.fromkeys(choice.name for choice in study.method)),
        packages=study.packages,
        budgets=budgets_of(study),
        polyclinic=version("polyclinic"),
        flower=release(version("flwr")),
        keys=tuple(sorted(fingerprints)),
    )


def publish(facts: Published, file: Path) -> None:
    """Writes the facts to where the proxy serves them from."""
    write_atomic(file, facts.model_dump_json(indent=2) + "\n")
    file.chmod(0o644)


def read_published(text: bytes) -> Published:
    """The facts that a server sent; ValueError where it sent something else."""
    try:
        return Published.model_validate_json(text)
    except ValidationError:
        raise ValueError("the answer is not what a coordinator of Polyclinic publishes") from None
