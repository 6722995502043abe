"""The app bundle that travels, and the guard that lets nothing else of an app be imported.

The bundle is a description that points to the installed Polyclinic; it carries no code.

Flower unpacks the app it was sent and puts its folder on Python's path. Before the first import
from there the guard compares the folder with the bundle of the installed Polyclinic.
"""

import fcntl
import os
import stat
import sys
import time
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.metadata import entry_points, version
from pathlib import Path
from types import ModuleType

import tomli_w

from polyclinic.engine.parents import end_with
from polyclinic.runs import write_atomic

GUARDED = "flwr-clientapp"
CLOSED = ("flwr-agentapp", "flwr-connector", "flwr-model", "flwr-serverapp", "flwr-simulation")
"""Flower's other programs, which nobody may start at a site."""
FILE = "pyproject.toml"
LATE = 25.0  # seconds; a program that is silent for 30 is given up by Flower, which starts another
_DESCRIPTION = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "polyclinic-federation"
version = "{version}"
description = "Points to the Polyclinic that is installed; carries no code"
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "polyclinic"

[tool.flwr.app.components]
serverapp = "polyclinic.engine.flower.server_app:app"
clientapp = "polyclinic.engine.flower.site_app:app"

[tool.flwr.app.config]
study = ""
runs = ""
attempt = ""
coordinator = 0
resume = false
fresh = false
insecure = false
certificate = ""
key = ""
"""


def description() -> str:
    """The only file of the bundle, of this version of Polyclinic, as Flower itself writes it."""
    return tomli_w.dumps(tomllib.loads(_DESCRIPTION.format(version=version("polyclinic"))))


def write_bundle(folder: Path) -> Path:
    """Write the bundle into a folder of its own, and give it."""
    write_atomic(folder / FILE, description())
    return folder


def differences(folder: Path) -> list[str]:
    """What in a folder is not, to the byte, the bundle of this version; empty where all is."""
    files = {str(f.relative_to(folder)): f for f in folder.rglob("*") if not f.is_dir()}
    same = FILE in files and files[FILE].read_bytes() == description().encode()
    return sorted({FILE, *files} - ({FILE} if same else set()))


class ForeignCode(ImportError):
    """The app that came over the wire is not the one of the installed Polyclinic."""


class Guard(MetaPathFinder):
    """Looks at Python's path before every import."""

    def __init__(self, apps: Path) -> None:
        self.apps = apps.resolve()
        self.checked: set[str] = set()

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,  # noqa: ARG002
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        """None, so that others find the module; ForeignCode where a folder must not be used."""
        for entry in [each for each in sys.path if each not in self.checked]:
            folder = Path(entry).resolve()
            if folder.is_relative_to(self.apps):
                different = differences(folder)
                if different:
                    raise ForeignCode(
                        f"the app that came with this message is not that of the Polyclinic "
                        f"installed here ({', '.join(different[:5])}); it was not run ({fullname})"
                    )
            self.checked.add(entry)
        return None


def main() -> None:  # pragma: no cover (in a process of its own)
    """Run the guarded program with the arguments of this one."""
    # Flower's own watch cannot wake a program that waits for a message from a dead SuperNode.
    end_with(os.getppid())
    sys.meta_path.insert(0, Guard(Path(os.environ["FLWR_HOME"]) / "apps"))
    (program,) = entry_points(group="console_scripts", name=GUARDED)
    with in_turn(Path(sys.argv[0]).parent / "starting"):
        run = program.load()
    run()


@contextmanager
def in_turn(lock: Path) -> Iterator[None]:
    """Let one program start at a time, and end those that waited until Flower gave them up.

    Otherwise a machine that is too busy to start a program in time starts more and more of them.
    """
    came = time.monotonic()
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        if time.monotonic() - came > LATE:
            raise SystemExit("this machine is too busy; Flower has started another program by now")
        yield


def write_programs(folder: Path) -> Path:
    """A folder of programs that take the place of Flower's own at a site, found by name."""
    folder.mkdir(parents=True, exist_ok=True)
    head = f"#!{sys.executable}\n"
    texts = {GUARDED: f"{head}from polyclinic.engine.flower.guard import main\n\nmain()\n"}
    texts |= dict.fromkeys(CLOSED, f"{head}raise SystemExit('closed at this site')\n")
    for name, text in texts.items():
        file = folder / name
        file.write_text(text)
        file.chmod(stat.S_IRWXU)
    return folder
