"""Every command line of Flower's that is used, and its environment."""

import os
import re
import sysconfig
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from itertools import chain
from pathlib import Path

import tomli_w

from polyclinic.config.coordinator_file import ServerCertificates
from polyclinic.config.node_file import ServerAddress

CONNECTION = "coordinator"
"""What the coordinator's SuperLink is called in Flower's own config.toml."""


RELEASES = ("1.41", "1.42")
"""Flower's releases that these command lines were tried with."""
SUPERLINK = ("flower-superlink", "--disable-runtime-dependency-installation")
SUPERNODE = ("flower-supernode",)  # installs nothing unless allowed to
REGISTER = ("flwr", "supernode", "register")
QUIET: Mapping[str, str] = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
}
"""What keeps Flower from reporting home and from installing packages at run time."""


def refuse_untried() -> None:
    """Raise a ValueError where the Flower that is installed is none that was tried."""
    known = " or ".join(f"{name}.*" for name in RELEASES)
    advice = f"install polyclinic[flower], which brings Flower {known}"
    try:
        found = version("flwr")
    except PackageNotFoundError:
        raise ValueError(f"Flower is not installed; {advice}") from None
    if release(found) not in RELEASES:
        raise ValueError(f"Flower {found} is installed, which was never tried; {advice}")


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
    host: str, port: int, database: Path, certificates: ServerCertificates | None
) -> tuple[str, ...]:
    """Starts a SuperLink; without certificates it neither encrypts nor asks who calls."""
    refuse_untried()
    where = ("--host", host, "--port", str(port), "--database", str(database))
    if certificates is None:
        return (*SUPERLINK, *where, "--insecure")
    return (
        *(*SUPERLINK, *where, "--enable-supernode-auth"),
        *("--ssl-ca-certfile", str(certificates.ca)),
        *("--ssl-certfile", str(certificates.certificate)),
        *("--ssl-keyfile", str(certificates.key)),
    )


def supernode(name: str, server: ServerAddress, port: int) -> tuple[str, ...]:
    """Starts the SuperNode of a site; `port` is its own, on the loopback interface only."""
    refuse_untried()
    named = ("--port", str(port), "--node-config", f'site="{name}"')
    start = (*SUPERNODE, "--superlink", server.address, *named)
    if server.insecure:
        return (*start, "--insecure")
    trusted = ("--root-certificates", str(server.ca))
    return (*start, *trusted, "--auth-supernode-private-key", str(server.key))


def run(app: Path, settings: Mapping[str, str | int | float | bool]) -> tuple[str, ...]:
    """Submits an app with these settings and prints the run's number as JSON."""
    lines = tomli_w.dumps(settings).splitlines()
    overrides = (("--run-config", line.replace(" = ", "=", 1)) for line in lines)
    return ("flwr", "run", str(app), CONNECTION, "--format", "json", *chain(*overrides))


def register(public_key: Path, name: str) -> tuple[str, ...]:
    """Tells the SuperLink that the holder of this key may connect."""
    return (*REGISTER, str(public_key), CONNECTION, "--name", name, "--format", "json")


def sites() -> tuple[str, ...]:
    """Lists the SuperNodes that the SuperLink knows, as JSON."""
    return ("flwr", "supernode", "list", CONNECTION, "--format", "json")


def write_connection(home: Path, address: str, ca: Path | None) -> Path:
    """Writes Flower's config.toml, by which its commands find the coordinator's SuperLink."""
    security = {"insecure": True} if ca is None else {"root-certificates": str(ca)}
    entry = {"address": address, **security}
    home.mkdir(parents=True, exist_ok=True)
    file = home / "config.toml"
    file.write_text(tomli_w.dumps({"superlink": {"default": CONNECTION, CONNECTION: entry}}))
    return file
