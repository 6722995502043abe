"""Commands that prepare a federation of real hospitals: polyclinic deploy init and others."""

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from polyclinic.cli.code import tables
from polyclinic.cli.federation import Node
from polyclinic.cli.run import StudyFile

app = typer.Typer(no_args_is_help=True)


@app.callback()
def needs_flower() -> None:
    """Prepare a federation of real hospitals."""
    if find_spec("flwr") is None:
        raise ValueError("Flower is not installed; pip install 'polyclinic[flower]'")


@app.command()
def init(
    study: StudyFile,
    address: Annotated[
        str, typer.Option(help="Where hospitals reach the coordinator, as fl.example.org:443.")
    ],
    to: Annotated[Path, typer.Option(help="The folder to write.")] = Path("deployment"),
    public_keys: Annotated[
        Path | None,
        typer.Option(help="A folder of <site>.pub, made at the hospitals by `deploy key`."),
    ] = None,
    days: Annotated[int, typer.Option(min=1, help="How long the certificate is valid.")] = 365,
) -> None:
    """Write certificates, keys, configs, service units, a proxy config and a runbook.

    Doing it again keeps the authority and all keys, adds new sites and renews the certificate.
    """
    from polyclinic.config import load_study
    from polyclinic.engine.flower.deploy.folder import Deployment, write_deployment

    settings = load_study(study, [], tables())
    deployment = Deployment(to)
    prints = write_deployment(settings, address, deployment, days=days, public_keys=public_keys)
    for name, fingerprint in prints.items():
        typer.echo(f"{name}: {fingerprint}  {deployment.site(name)}")
    typer.echo(f"next: {to / 'README.md'}")


@app.command()
def check(site: Node) -> None:
    """Check everything a hospital needs before it trains; every ✗ says what to do."""
    from polyclinic.catalog import installed
    from polyclinic.config.node_file import load_node_file
    from polyclinic.engine.flower.deploy.checks import check_site

    good = True
    own = load_node_file(site, tables().kind)
    for finding in check_site(own, installed(own.allow.packages)):
        typer.echo(str(finding))
        good = good and finding.good
    typer.echo("ready to train" if good else "not ready: see the lines with ✗")
    sys.exit(0 if good else 1)


@app.command()
def key(
    path: Annotated[Path, typer.Argument(help="Where to write it, such as keys/north.")],
) -> None:
    """Make a site's key at the site: the private half stays, the .pub goes to the coordinator."""
    from polyclinic.engine.flower.deploy.keys import fingerprint, make_key

    public = make_key(path)
    typer.echo(f"{path}: keep it here; nobody else needs it")
    typer.echo(f"{public}: send it to the coordinator")
    typer.echo(f"{fingerprint(public)}: tell them this by telephone")


@app.command()
def dossier(
    file: Annotated[Path, typer.Argument(help="A hospital's node.toml, or a coordinator.toml.")],
    study: Annotated[
        Path | None,
        typer.Option(help="The study's TOML file; default: of the runs here, or beside FILE."),
    ] = None,
    to: Annotated[Path, typer.Option(help="The folder to write.")] = Path("dossier"),
    runs: Annotated[
        Path | None, typer.Option(help="The folder that holds all runs; default: as usual.")
    ] = None,
) -> None:
    """Write for the data-protection officer what flows, who sees what, ε, ledger and audit."""
    from polyclinic.engine.flower.deploy.dossier import write_dossier

    typer.echo(f"dossier: {write_dossier(file, to, tables(), study=study, runs=runs)}")
