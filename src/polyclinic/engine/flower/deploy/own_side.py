"""What can be checked at a site without the server: programs, keys, data, disk."""

import os
import platform
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from cryptography import x509

from polyclinic.config.node_file import NodeFile
from polyclinic.data.check import NoTaskError, SiteSummary, check_folder
from polyclinic.data.errors import DataError, Findings, listed
from polyclinic.data.folder import read_site
from polyclinic.data.labels import check_labels
from polyclinic.data.tasks import Task
from polyclinic.engine.flower import commands
from polyclinic.engine.flower.deploy.certificates import read_certificate
from polyclinic.engine.flower.deploy.keys import fingerprint, is_private, public_half

DAYS_LEFT = 14
MESSAGES_ON_DISK = 4  # two generations of private weights, and as much again while writing
SPARE_MEGABYTES = 1000


@dataclass(frozen=True)
class Finding:
    """What was looked at and found; one with advice on what to do is an error."""

    about: str
    text: str
    advice: str = ""

    @property
    def good(self) -> bool:
        """Whether training may begin as far as this goes."""
        return not self.advice

    def __str__(self) -> str:
        mark, advice = ("✓", "") if self.good else ("✗", f"\n    → {self.advice}")
        return f"{mark} {self.about}: {self.text}{advice}"


def check_programs() -> Finding:
    """Python, Polyclinic and Flower."""
    try:
        commands.refuse_untried()
    except ValueError as error:
        return Finding("versions", str(error), "pip install 'polyclinic[flower]'")
    installed = f"Polyclinic {version('polyclinic')}, Flower {version('flwr')}"
    return Finding("versions", f"{installed}, Python {platform.python_version()}")


def check_quiet(site: NodeFile) -> Finding:
    """That the SuperNode would start with telemetry, update check and run-time installs off."""
    given = commands.environment(site.state)
    loud = [name for name, value in commands.QUIET.items() if given.get(name) != value]
    command = commands.supernode(site.name, site.server, port=1)
    loud += [word for word in command if "allow-runtime" in word]
    if loud:
        return Finding("quiet", f"not off: {', '.join(loud)}", "reinstall Polyclinic")
    return Finding("quiet", "telemetry, update check and run-time installs are off")


def check_identity(site: NodeFile) -> Iterator[Finding]:
    """The site's key and the authority that it trusts."""
    server = site.server
    if server.key is None or server.ca is None:
        advice = "set server.ca and server.key and remove insecure, unless this is a trial"
        yield Finding(
            "encryption", "insecure = true: messages travel open, nobody is known", advice
        )
        return
    yield _key(server.key)
    try:
        yield validity("authority", read_certificate(server.ca))
    except (OSError, ValueError) as error:
        yield Finding("authority", str(error), "copy ca.crt from the coordinator, set server.ca")


def validity(about: str, certificate: x509.Certificate, names: str = "") -> Finding:
    """Whether a certificate is valid and stays so for a while."""
    now = datetime.now(UTC)
    begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    days = (ends - now).days
    until = f"{names}valid until {ends:%Y-%m-%d}, {days} days"
    if begins > now:
        return Finding(about, f"valid only from {begins:%Y-%m-%d %H:%M} UTC", "set the clock")
    if days < DAYS_LEFT:
        return Finding(about, until, "the coordinator must run `polyclinic deploy init` again")
    return Finding(about, until)


def check_disk(site: NodeFile) -> Finding:
    """That the state folder can be written and has room."""
    folder = next(each for each in (site.state, *site.state.parents) if each.exists())
    needed = site.allow.message_megabytes * MESSAGES_ON_DISK + SPARE_MEGABYTES
    free = shutil.disk_usage(folder).free / 1e6
    text = f"{free / 1000:.1f} GB free for {site.state}, {needed / 1000:.1f} GB needed"
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        return Finding("disk", f"{folder} cannot be written to", "give its user the right to write")
    advice = "free some space, or set `state` to another disk" if free < needed else ""
    return Finding("disk", text, advice)


def check_data(site: NodeFile, task: Task | None, tasks: Mapping[str, Task]) -> Finding:
    """The data folder, by the same checks as `polyclinic data check`."""
    try:
        summary = check_folder(site.data, task, tasks)
    except NoTaskError as error:
        line = f'write a line such as task = "fundus" into {site.data / "site.toml"}'
        advice = f"{line}, or try again when the server is reached, which knows the task"
        return Finding("data", "; ".join(error.mistakes), advice)
    except DataError as error:
        advice = f"correct `data` in node.toml; try: polyclinic data check {site.data}"
        return Finding("data", "; ".join(error.mistakes), advice)
    if len(summary.sites) != 1:
        found = listed([each.name for each in summary.sites])
        return Finding("data", f"{site.data} holds several sites: {found}", "name one of them")
    errors = [*summary.mistakes, *_label_errors(site)]
    if errors:
        advice = f"polyclinic data check {site.data} --task {summary.task.name}"
        return Finding("data", listed(errors, most=3), f"correct them; all are listed by: {advice}")
    return _enough(site, summary.sites[0], len(summary.warnings))


def _key(path: Path) -> Finding:
    try:
        text = f"{path.name}, {fingerprint(path)} (compare with the coordinator's list)"
    except OSError as error:
        advice = f"polyclinic deploy key {path}, then send {public_half(path)} to the coordinator"
        return Finding("key", f"{path} cannot be read: {error.strerror}", advice)
    except ValueError as error:
        return Finding("key", str(error), "make one by `polyclinic deploy key`")
    if not is_private(path):
        return Finding("key", f"{path} can be read by others", f"chmod 600 {path}")
    return Finding("key", text)


def _label_errors(site: NodeFile) -> list[str]:
    if site.labels is None:
        return []
    folder = read_site(site.data, site.name)
    findings = Findings(site.name, site.data)
    splits = {case.name: case.split or "train" for case in folder.cases}
    check_labels(folder, site.labels, splits, findings)
    return findings.lines


def _enough(site: NodeFile, found: SiteSummary, warnings: int) -> Finding:
    training = found.splits.get("train", found.cases)
    divided = "to train on" if found.splits else "not yet divided"
    otherwise = f"; {found.otherwise}" if found.otherwise else ""
    text = f"cases: {found.cases}, {training} {divided}; warnings: {warnings}{otherwise}"
    if training < site.allow.cases:
        return Finding("data", text, f"allow.cases asks for {site.allow.cases}: lower it, or wait")
    return Finding("data", text)
