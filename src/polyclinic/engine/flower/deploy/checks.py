"""What a hospital checks before any training: its own side, the server, and that both agree."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version

from polyclinic.config import Tables
from polyclinic.config.node_file import NodeFile
from polyclinic.config.printing import literal
from polyclinic.data.tasks import Task
from polyclinic.engine.flower.commands import release
from polyclinic.engine.flower.deploy.certificates import names_of
from polyclinic.engine.flower.deploy.contact import Answer, Unreachable, ask
from polyclinic.engine.flower.deploy.keys import fingerprint, public_half
from polyclinic.engine.flower.deploy.own_side import (
    Finding,
    check_data,
    check_disk,
    check_identity,
    check_programs,
    check_quiet,
    validity,
)
from polyclinic.engine.flower.deploy.published import ADDRESS, Published, read_published
from polyclinic.engine.flower.limits import refused_settings

# Flower refuses signatures that are 5 s from the future or 300 s old; Date leaves out a second.
MOST_AHEAD, MOST_BEHIND = 4.0, 299.0
CONTROL = "/v1/control/"
USE_THE_PROXY = "ask the coordinator to use the nginx.conf that `polyclinic deploy init` wrote"


def check_site(site: NodeFile, tables: Tables) -> Iterator[Finding]:
    """Everything that must hold at a site before it trains, a line each, as soon as it is known."""
    installed = check_programs()
    yield installed
    if installed.good:
        yield check_quiet(site)
    yield from check_identity(site)
    yield check_disk(site)
    findings, task = _server(site, tables)
    yield from findings
    yield check_data(site, task, tables.task)


def _server(site: NodeFile, tables: Tables) -> tuple[list[Finding], Task | None]:
    """What was found about the server, and the task of its study where that can be known."""
    try:
        answer = ask(site.server, ADDRESS)
        control = ask(site.server, CONTROL, "POST")
    except Unreachable as error:
        return [Finding("server", str(error), error.advice)], None
    findings = [Finding("server", f"{site.server.address} answers")]
    if answer.certificate:
        names = f"for {', '.join(names_of(answer.certificate))}; "
        findings.append(validity("certificate", answer.certificate, names))
    findings += [_clock(answer), _closed(control)]
    try:
        published = _published(answer)
    except ValueError as error:
        return [*findings, Finding("study", str(error), USE_THE_PROXY)], None
    same_task, task = _same_task(published, tables)
    findings += [_same_versions(published), same_task, _agreed(site, published)]
    findings += _known(site, published)
    return findings, task


def _clock(answer: Answer) -> Finding:
    if answer.ahead is None:
        return Finding("clock", "the server does not say what time it is", USE_THE_PROXY)
    text = f"{abs(answer.ahead):.0f} s {'ahead of' if answer.ahead > 0 else 'behind'} the server's"
    if -MOST_BEHIND < answer.ahead < MOST_AHEAD:
        return Finding("clock", text)
    limits = "a site may be 5 s ahead and 300 s behind"
    return Finding("clock", f"{text}; {limits}", "synchronise both clocks (NTP)")


def _closed(control: Answer) -> Finding:
    if control.status == 403:
        return Finding("control interface", "closed to hospitals")
    text = f"{CONTROL} answers with {control.status}: whoever reaches this port may submit runs"
    advice = "do not start; the coordinator must put the proxy in front, which answers 403"
    return Finding("control interface", text, advice)


def _published(answer: Answer) -> Published:
    if answer.status != 200:
        raise ValueError(f"the server does not publish {ADDRESS} (answer {answer.status})")
    return read_published(answer.text)


def _same_versions(published: Published) -> Finding:
    others = published.packages
    theirs = _versions(published.polyclinic, published.flower, others)
    here = {name: _version(name) for name in others}
    ours = _versions(version("polyclinic"), release(version("flwr")), here)
    if ours == theirs:
        return Finding("same versions", f"{theirs} here and at the coordinator")
    text = f"here {ours}, at the coordinator {theirs}"
    return Finding("same versions", text, "install the coordinator's versions")


def _versions(polyclinic: str, flower: str, others: Mapping[str, str]) -> str:
    every = {"Polyclinic": polyclinic, "Flower": flower, **others}
    return ", ".join(f"{name} {number}" for name, number in every.items())


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "is missing"


def _same_task(published: Published, tables: Tables) -> tuple[Finding, Task | None]:
    """The coordinator's task, if what is known here by its name means the same."""
    text = f"{published.task}: {', '.join(published.classes)}"
    advice = "install the same Polyclinic, or agree with the coordinator on one task"
    try:
        known: Task | None = tables.task[published.task]
    except (KeyError, ValueError):  # nothing of it here, or code that is not allowed
        known = None
    try:
        task = Task(**published.definition) if published.definition else known
    except ValueError as error:
        return Finding("task", f"{text}; its definition is wrong: {error}", advice), None
    if task is None:
        return Finding("task", f"{text}; it is not known here", advice), None
    unlike = known.unlike(task) if known else []
    if task.name != published.task or task.classes != published.classes:
        unlike.append("its definition is of another task")
    if unlike:
        return Finding("task", f"{text}; here {'; '.join(unlike)}", advice), None
    prepared = [
        f"{key} {literal(there)}"
        for key, (_, there) in (known.prepared_otherwise(task) if known else {}).items()
        if there is not None
    ]
    otherwise = f"; prepared otherwise than usual: {', '.join(prepared)}" if prepared else ""
    own = "" if known else "; defined by the coordinator"
    return Finding("task", f"{text}{own}{otherwise}"), task


def _known(site: NodeFile, published: Published) -> Iterator[Finding]:
    """Whether the coordinator has this site's key; what is wrong with a key is told elsewhere."""
    key = site.server.key
    with suppress(OSError, ValueError):
        own = fingerprint(key) if key else None
        if published.keys is None:
            yield Finding("known", "not told: the coordinator does not publish the keys it knows")
        elif own in published.keys:
            yield Finding("known", "the coordinator knows this site's key")
        elif key:
            text = f"the coordinator does not know this site's key ({own})"
            yield Finding("known", text, f"send {public_half(key)} to the coordinator")


def _agreed(site: NodeFile, published: Published) -> Finding:
    """That the study asks for nothing that the site's permissions would refuse."""
    allow = site.allow
    refused = refused_settings(allow, published.methods, published.budgets)
    refused += [
        f"code of the package {name} is not allowed"
        for name in published.packages
        if name not in allow.packages
    ]
    if refused:
        text = f"the study {published.study} would be refused: {'; '.join(refused)}"
        return Finding("permissions", text, "agree to it in [allow] of node.toml, or do not start")
    return Finding("permissions", f"[allow] covers the study {published.study}")
