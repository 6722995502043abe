"""polyclinic audit: whether final models give away which cases they were trained on."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from polyclinic.cli.code import tables

if TYPE_CHECKING:
    from rich.table import Table

    from polyclinic.auditing.membership import Audit
    from polyclinic.evaluation.membership import Estimate


def audit(
    paths: Annotated[
        list[Path],
        typer.Argument(help="Folders of runs or studies, or a hospital's folder or node.toml."),
    ],
    reference: Annotated[
        list[Path],
        typer.Option(help="A run whose models of other sites did not see a site's cases."),
    ] = [],  # noqa: B006
) -> None:
    """Try to tell training cases from others by the final models (membership inference)."""
    from itertools import groupby

    from polyclinic.api.console import CONSOLE
    from polyclinic.auditing.membership import audit as audited
    from polyclinic.auditing.writing import write_audit
    from polyclinic.exporting.choosing import origins

    others = origins(reference, tables()) if reference else []
    for _, found in groupby(origins(paths, tables()), key=lambda each: each.run.folder.path):
        result = audited(list(found), others)
        CONSOLE.print(_table(result))
        for remark in result.remarks:
            typer.echo(f"- {remark}")
        folder = write_audit(result)
        typer.echo(f"audit: {folder.path}/audit.json, audit.csv, audit.svg")


def _table(audit: "Audit") -> "Table":
    from rich.table import Table

    from polyclinic.evaluation.membership import RATES

    run = audit.origins[0].run
    rates = (f"found at {100 * rate:g} %" for rate in RATES)
    heads = ("site", "attack", "members", "others", "AUC", *rates)
    title = f"{run.choice.title}, seed {run.seed}: are training cases told apart?"
    table = Table(*heads, title=title)
    for each in audit.findings:
        told = map(_told, (each.success.auc, *each.success.found))
        table.add_row(each.site, each.attack, str(each.members), str(each.others), *told)
    return table


def _told(estimate: "Estimate") -> str:
    if estimate.low is None:
        return f"{estimate.value:.2f}"
    return f"{estimate.value:.2f} ({estimate.low:.2f} to {estimate.high:.2f})"
