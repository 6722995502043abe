"""The folder that a consortium starts from: the coordinator's part, and one part for each site."""

import sysconfig
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree
from typing import Any

from polyclinic.config import Study, to_toml
from polyclinic.config.node_file import split_address
from polyclinic.config.printing import literal
from polyclinic.engine.flower.deploy.certificates import (
    Authority,
    make_authority,
    make_certificate,
    names_of,
    read_certificate,
)
from polyclinic.engine.flower.deploy.keys import fingerprint, make_key
from polyclinic.engine.flower.deploy.published import ADDRESS, facts_of, publish
from polyclinic.engine.flower.engine import refuse_impossible, site_names
from polyclinic.predict.pages import templates
from polyclinic.runs import slug, write_atomic

INNER_PORT = 8000  # the SuperLink's, on the loopback interface, behind the proxy


@dataclass(frozen=True)
class Deployment:
    """Where the parts of a deployment lie."""

    folder: Path

    @property
    def authority(self) -> Authority:
        """The consortium's certificate authority."""
        return Authority(self.folder / "authority" / "ca.crt", self.folder / "authority" / "ca.key")

    @property
    def coordinator(self) -> Path:
        """All that the coordinator's machine needs."""
        return self.folder / "coordinator"

    def site(self, name: str) -> Path:
        """All that one hospital needs."""
        return self.folder / "sites" / slug(name)

    def public_key(self, name: str) -> Path:
        """The public half of a site's key, by which the coordinator knows it."""
        return self.coordinator / "public-keys" / f"{slug(name)}.pub"


def write_deployment(
    study: Study,
    address: str,
    deployment: Deployment,
    *,
    days: int,
    public_keys: Path | None = None,
) -> dict[str, str]:
    """Writes the folder and gives each site's fingerprint.

    Keys and the authority of an earlier time are kept, the server's certificate is made anew where
    the authority's key is at hand: this is how a certificate is renewed and how a site is added.
    """
    host, _ = split_address(address)
    refuse_impossible(study)
    names = site_names(study)
    _refuse_equal_folders(names)
    _certify(deployment, host, f"Polyclinic {study.name}", days)
    for name in names:
        _write_key(deployment, name, public_keys)
    prints = {name: fingerprint(deployment.public_key(name)) for name in names}
    facts = facts_of(study, prints.values())
    publish(facts, deployment.coordinator / "published" / "study.json")
    _write_coordinator(study, address, deployment, prints)
    for name in names:
        _write_site(study, address, deployment, name)
    return prints


def _certify(deployment: Deployment, host: str, authority: str, days: int) -> None:
    """Makes the authority if there is none, and a new certificate while its key is at hand."""
    folder = deployment.coordinator / "certificates"
    certificate = folder / "server.crt"
    if not deployment.authority.certificate.exists():
        make_authority(deployment.authority, authority)
    if deployment.authority.key.exists():
        make_certificate(deployment.authority, certificate, folder / "server.key", [host], days)
    elif not certificate.exists() or host not in names_of(read_certificate(certificate)):
        raise ValueError(
            f"a certificate for {host} needs {deployment.authority.key}: bring it back"
        )
    write_atomic(folder / "ca.crt", deployment.authority.certificate.read_bytes())


def _write_key(deployment: Deployment, name: str, public_keys: Path | None) -> None:
    """Takes the public half that a hospital sent, or makes the whole key for it."""
    known = deployment.public_key(name)
    made_here = deployment.site(name) / "keys"
    sent = public_keys / known.name if public_keys else None
    if sent and sent.exists():
        fingerprint(sent)  # refuses what is no key before anything relies on it
        rmtree(made_here, ignore_errors=True)
        write_atomic(known, sent.read_bytes())
    elif not known.exists():
        write_atomic(known, make_key(made_here / slug(name)).read_bytes())


def _write_coordinator(
    study: Study,
    address: str,
    deployment: Deployment,
    fingerprints: Mapping[str, str],
) -> None:
    certificate = read_certificate(deployment.coordinator / "certificates" / "server.crt")
    about = {
        "study": study.name,
        "host": split_address(address)[0],
        "port": split_address(address)[1],
        "folder": deployment.coordinator.resolve(),
        "programs": sysconfig.get_path("scripts"),
        "published": ADDRESS,
        "inner_port": INNER_PORT,
        "fingerprints": fingerprints,
        "files": {name: slug(name) for name in fingerprints},
        "made_here": [name for name in fingerprints if (deployment.site(name) / "keys").exists()],
        "ends": certificate.not_valid_after_utc.date(),
    }
    for file in ("coordinator.toml", "nginx.conf", "polyclinic-server.service"):
        write_atomic(deployment.coordinator / file, _filled(file, about))
    write_atomic(deployment.coordinator / "study.toml", to_toml(study))
    write_atomic(deployment.folder / "README.md", _filled("coordinator.md", about))


def _write_site(study: Study, address: str, deployment: Deployment, name: str) -> None:
    folder = deployment.site(name)
    labels = {site.name: site.labels for site in study.site}
    about = {
        "study": study.name,
        "address": address,
        "name": name,
        "file": slug(name),
        "labels": labels.get(name),
        "packages": list(study.packages),
        "methods": list(dict.fromkeys(choice.name for choice in study.method)),
        "has_key": (folder / "keys").exists(),
        "fingerprint": fingerprint(deployment.public_key(name)),
    }
    write_atomic(folder / "certificates" / "ca.crt", deployment.authority.certificate.read_bytes())
    for file in ("node.toml", "polyclinic-site.service"):
        write_atomic(folder / file, _filled(file, about))
    write_atomic(folder / "README.md", _filled("site.md", about))


def _filled(template: str, about: Mapping[str, Any]) -> str:
    # TOML, units and Markdown, no HTML: nothing is escaped.
    environment = templates("polyclinic.engine.flower.deploy", keep_trailing_newline=True)
    environment.filters["toml"] = literal
    environment.filters["unit"] = lambda text: str(text).replace("%", "%%")
    return environment.get_template(template).render(about)


def _refuse_equal_folders(names: Sequence[str]) -> None:
    counts = Counter(map(slug, names))
    same = [name for name in names if counts[slug(name)] > 1]
    if same:
        raise ValueError(f"sites {', '.join(same)} would share a folder; give them other names")
