"""What the terminal shows of results and of folders."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from polyclinic.api.console import CONSOLE

if TYPE_CHECKING:
    from polyclinic.data.check import Summary
    from polyclinic.predict.evaluating import Evaluation


def show_summary(paths: Sequence[Path]) -> None:
    """The comparison table of runs."""
    from polyclinic.report import summary_table

    CONSOLE.print(summary_table(paths))


def show_check(summary: Summary) -> None:
    """What a folder of sites holds, and its errors and warnings."""
    table = Table(title=f"{summary.task.name}, sites: {len(summary.sites)}")
    for heading in ("site", "cases", "patients", "train/val/test", "size", "classes", "labels"):
        table.add_column(heading)
    for site in summary.sites:
        splits = "/".join(str(site.splits.get(split, 0)) for split in ("train", "val", "test"))
        sizes = {f"{high}×{wide}" for high, wide in (site.smallest, site.largest)}
        shares = "  ".join(f"{name} {share:.1%}" for name, share in site.shares.items())
        kinds = "  ".join(f"{kind} {count}" for kind, count in site.kinds.items())
        cells = (site.cases, site.patients, splits if site.splits else "not yet", "–".join(sizes))
        table.add_row(site.name, *map(str, cells), shares, kinds)
    CONSOLE.print(table)
    for warning in summary.warnings:
        CONSOLE.print(f"warning: {warning}", style="yellow", soft_wrap=True)
    for mistake in summary.mistakes:
        CONSOLE.print(f"error: {mistake}", style="red", soft_wrap=True)  # lines to be copied
    CONSOLE.print(f"errors: {len(summary.mistakes)}, warnings: {len(summary.warnings)}")


def show_evaluation(evaluation: Evaluation) -> None:
    """Means of models at sites, with intervals."""
    from polyclinic.predict.pages import score

    table = Table(title="mean over cases (95 % interval, bootstrap over patients)")
    for heading in ("model", "site", "region", *(m.title for m in evaluation.metrics.values())):
        table.add_column(heading)
    lines: dict[tuple[str, str, str], list[str]] = {}
    for model, facts in evaluation.summary():
        lines.setdefault((model, facts.site, facts.region), []).append(score(facts))
    for names, cells in lines.items():
        table.add_row(*names, *cells)
    CONSOLE.print(table)
