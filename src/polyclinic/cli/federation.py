"""Commands of a federation of real hospitals: polyclinic server | site | approve | ledger."""

import signal
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Annotated

import typer

from polyclinic.cli.code import say, tables
from polyclinic.cli.run import Fresh, Overrides, Resume, Runs, StudyFile

if TYPE_CHECKING:
    from polyclinic.engine.flower.ledger import Ledger

ledger_app = typer.Typer(
    help="Look after the list of everything that left a site.", no_args_is_help=True
)
Node = Annotated[Path, typer.Argument(help="The node.toml of this hospital.")]
LedgerPath = Annotated[Path, typer.Argument(help="A ledger, a state folder or a node.toml.")]
Insecure = Annotated[
    bool, typer.Option(help="No encryption and no proof of identity: for trials only.")
]


def server(
    study: StudyFile,
    overrides: Overrides = [],  # noqa: B006 (typer wants the plain value)
    coordinator: Annotated[
        Path, typer.Option(help="The file that `polyclinic deploy init` wrote.")
    ] = Path("coordinator.toml"),
    resume: Resume = False,
    fresh: Fresh = False,
    runs: Runs = Path("runs"),
    insecure: Insecure = False,
) -> None:
    """Run a study across hospitals: start or join the SuperLink, then write the report."""
    from polyclinic.api.progress import watching
    from polyclinic.cli.terminal_tables import show_summary
    from polyclinic.config import load_study
    from polyclinic.config.coordinator_file import load_coordinator_file
    from polyclinic.engine.flower.coordinator import Coordinator, across_hospitals
    from polyclinic.report import write_report
    from polyclinic.runs import slug

    if resume and fresh:
        raise ValueError("--resume keeps earlier runs and --fresh removes them: give one of them")
    settings = across_hospitals(load_study(study, overrides, tables()))
    file = load_coordinator_file(coordinator)
    _refuse_unsaid_insecurity(file.insecure, insecure, coordinator)
    try:
        host = Coordinator(file, say, going_on=_until_ended())
        with host.open(), watching(settings, runs, fresh=fresh) as watch:
            done = host.run(settings, runs, resume=resume, fresh=fresh, watch=watch)
    except KeyboardInterrupt:
        typer.echo("\nstopped; finished rounds are kept: give the command with --resume", err=True)
        sys.exit(130)
    paths = [each.folder.path for each in done]
    page = write_report(paths, runs / slug(settings.name))
    show_summary(paths)
    typer.echo(f"report: {page}")


def site(
    file: Node,
    insecure: Insecure = False,
) -> None:
    """Take part in a study as one site, until this is ended."""
    from polyclinic.config.node_file import load_node_file
    from polyclinic.engine.flower.node import run_site
    from polyclinic.weak import KINDS  # all there are, without torch, which only the worker needs

    settings = load_node_file(file, KINDS)
    _refuse_unsaid_insecurity(settings.server.insecure, insecure, file)
    run_site(settings, file, say=say, going_on=_until_ended())
    typer.echo(f"site {settings.name} has left; its state is kept", err=True)
    sys.exit(130)


def approve(
    file: Node,
    study: Annotated[
        str, typer.Argument(help="The beginning of the study's hash; without it, all are shown.")
    ] = "",
    withdraw: Annotated[bool, typer.Option(help="Take the approval back.")] = False,
) -> None:
    """Show the studies that ask for this site in words, and approve one of them.

    Without a hash the exit code is 3 while a study waits.
    """
    from polyclinic.config.node_file import load_node_file
    from polyclinic.engine.flower.approval import Approvals
    from polyclinic.weak import KINDS

    settings = load_node_file(file, KINDS)
    approvals = Approvals(settings.state, settings.allow.studies)
    if study:
        found = approvals.named(study)
        (approvals.withdraw if withdraw else approvals.approve)(found)
        typer.echo(f"{found[:12]}: {approvals.seen()[found]}")
        return
    for found, standing in approvals.seen().items():
        if standing == "waits":
            typer.echo(approvals.description(found).read_text())
        typer.echo(f"{found[:12]}: {standing}")
    if not approvals.seen():
        typer.echo("no study has asked yet")
    sys.exit(3 if approvals.waiting() else 0)


@ledger_app.command()
def show(
    path: LedgerPath,
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """Tell in plain words what left this site, how often, how much, and to whom."""
    import json

    from polyclinic.engine.flower.ledger_words import as_data, in_words

    ledger = _ledger(path)
    ledger.refuse_broken()
    if as_json:
        typer.echo(json.dumps(as_data(ledger), indent=2, ensure_ascii=False))
        return
    for line in in_words(ledger):
        typer.echo(line)


@ledger_app.command()
def verify(
    path: LedgerPath,
    against: Annotated[
        Path | None, typer.Option(help="The ledgers.json that the coordinator keeps.")
    ] = None,
    name: Annotated[str, typer.Option(help="The site, where PATH is no node.toml.")] = "",
) -> None:
    """Check that nobody changed, removed or inserted a line, and sum up what left.

    Lines cut off the end, or a ledger written anew, show by what the coordinator countersigned.
    """
    from polyclinic.config.node_file import load_node_file
    from polyclinic.engine.flower.ledger import summary
    from polyclinic.engine.flower.witness import Countersignatures, differences, noted_in

    ledger = _ledger(path)
    mistakes = ledger.mistakes()
    if not mistakes:
        kept = Countersignatures(ledger.path.parent, name, None)
        mistakes = kept.mistakes(ledger)
    if not mistakes and against is not None:
        site = name or (load_node_file(path).name if path.suffix == ".toml" else "")
        mistakes = differences(noted_in(against, site), ledger)
    for mistake in mistakes:
        typer.echo(f"error: {mistake}", err=True)
    if mistakes:
        sys.exit(1)
    for line in summary(ledger):
        typer.echo(line)


def _ledger(path: Path) -> "Ledger":
    """The ledger of a site, by its file, its state folder or its node.toml."""
    from polyclinic.config.node_file import load_node_file
    from polyclinic.engine.flower.ledger import Ledger

    if path.suffix == ".toml":
        path = load_node_file(path).state
    ledger = Ledger(path / "ledger.jsonl" if path.is_dir() else path)
    if not ledger.path.exists():
        raise ValueError(f"there is no ledger at {ledger.path}")
    return ledger


def _refuse_unsaid_insecurity(in_file: bool, typed: bool, file: Path) -> None:
    if in_file and not typed:
        raise ValueError(f"{file} says insecure = true; type --insecure too if you mean it")
    if typed and not in_file:
        raise ValueError(f"--insecure needs insecure = true in {file} as well")


def _until_ended() -> Callable[[], bool]:
    """True until somebody ends this process from the keyboard or with a plain `kill`.

    An exception from the signal itself could get lost while programs are being started.
    """
    ended = Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    return lambda: not ended.is_set()
