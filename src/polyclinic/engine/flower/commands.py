"""Every Flower command line and environment variable, from one table of Flower's versions."""

import os
import re
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import tomli_w

from polyclinic.config.node_file import ServerAddress

CONNECTION = "coordinator"
"""What the coordinator's SuperLink is called in Flower's own config.toml."""


@dataclass(frozen=True)
class Spelling:
    """How a release of Flower spells what we ask of it."""

    superlink: tuple[str, ...] = ("flower-superlink", "--disable-runtime-dependency-installation")
    supernode: tuple[str, ...] = ("flower-supernode",)  # installs nothing unless allowed to
    authentication: str = "--enable-supernode-auth"
    private_key: str = "--auth-supernode-private-key"
    run: tuple[str, ...] = ("flwr", "run")
    register: tuple[str, ...] = ("flwr", "supernode", "register")
    sites: tuple[str, ...] = ("flwr", "supernode", "list")


SPELLINGS: Mapping[str, Spelling] = {"1.41": Spelling(), "1.42": Spelling()}
QUIET: Mapping[str, str] = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
}
"""What keeps Flower from reporting home and from installing packages at run time."""


@dataclass(frozen=True)
class Certificates:
    """The files by which a SuperLink proves who it is."""

    ca: Path
    certificate: Path
    key: Path


def spelling() -> Spelling:
    """The spelling of the Flower that is installed; ValueError where it is none we know."""
    known = " or ".join(f"{name}.*" for name in SPELLINGS)
    advice = f"install polyclinic[flower], which brings Flower {known}"
    try:
        found = version("flwr")
    except PackageNotFoundError:
        raise ValueError(f"Flower is not installed; {advice}") from None
    if release(found) not in SPELLINGS:
        raise ValueError(f"Flower {found} is installed, which was never tried; {advice}")
    return SPELLINGS[release(found)]


def release(full: str) -> str:
    """The part of Flower's version within which its programs understand each other: 1.41."""
    return ".".join(re.findall(r"\d+", full)[:2])


def environment(home: Path) -> dict[str, str]:
    """This process's environment, with Flower's own files under `home` and nothing sent home."""
    # Flower's programs start each other by name, so they must be found first.
    path = os.pathsep.join((sysconfig.get_path("scripts"), os.environ.get("PATH", os.defpath)))
    # A site's outgoing proxy is for the server, not for Flower's programs among themselves.
    given = os.environ.get("NO_PROXY", os.environ.get("no_proxy", ""))
    direct = ",".join(filter(None, (given, "localhost,127.0.0.1,::1")))
    places = {"FLWR_HOME": str(home), "PATH": path, "NO_PROXY": direct, "no_proxy": direct}
    return {**os.environ, **QUIET, **places}


def superlink(
    host: str, port: int, database: Path, certificates: Certificates | None
) -> tuple[str, ...]:
    """Starts a SuperLink; without certificates it neither encrypts nor asks who calls."""
    words = spelling()
    where = ("--host", host, "--port", str(port), "--database", str(database))
    if certificates is None:
        return (*words.superlink, *where, "--insecure")
    return (
        *(*words.superlink, *where, words.authentication),
        *("--ssl-ca-certfile", str(certificates.ca)),
        *("--ssl-certfile", str(certificates.certificate)),
        *("--ssl-keyfile", str(certificates.key)),
    )


def supernode(name: str, server: ServerAddress, port: int) -> tuple[str, ...]:
    """Starts the SuperNode of a site; `port` is its own, on the loopback interface only."""
    words = spelling()
    named = ("--port", str(port), "--node-config", f'site="{name}"')
    start = (*words.supernode, "--superlink", server.address, *named)
    if server.insecure:
        return (*start, "--insecure")
    return (*start, "--root-certificates", str(server.ca), words.private_key, str(server.key))


def run(app: Path, settings: Mapping[str, str | int | float | bool]) -> tuple[str, ...]:
    """Submits an app with these settings and prints the run's number as JSON."""
    overrides = (("--run-config", _setting(key, value)) for key, value in settings.items())
    words = (*spelling().run, str(app), CONNECTION, "--format", "json")
    return (*words, *(word for pair in overrides for word in pair))


def register(public_key: Path, name: str) -> tuple[str, ...]:
    """Tells the SuperLink that the holder of this key may connect."""
    words = (*spelling().register, str(public_key), CONNECTION)
    return (*words, "--name", name, "--format", "json")


def sites() -> tuple[str, ...]:
    """Lists the SuperNodes that the SuperLink knows, as JSON."""
    return (*spelling().sites, CONNECTION, "--format", "json")


def write_connection(home: Path, address: str, ca: Path | None) -> Path:
    """Writes Flower's config.toml, by which its commands find the coordinator's SuperLink."""
    security = {"insecure": True} if ca is None else {"root-certificates": str(ca)}
    entry = {"address": address, **security}
    home.mkdir(parents=True, exist_ok=True)
    file = home / "config.toml"
    file.write_text(tomli_w.dumps({"superlink": {"default": CONNECTION, CONNECTION: entry}}))
    return file


def _setting(key: str, value: str | int | float | bool) -> str:
    return tomli_w.dumps({key: value}).strip().replace(" = ", "=", 1)
