"""What the terminal shows of results and of folders."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from polyclinic.data.check import Summary


def plain_console(**settings: Any) -> Console:
    """A console that takes nothing in a text for markup: names and texts come from sites, too."""
    return Console(**settings, markup=False, emoji=False, highlight=False)


CONSOLE = plain_console()
if not CONSOLE.is_terminal:
    CONSOLE.width = 160  # a file or a pipe has no edge to wrap at


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
