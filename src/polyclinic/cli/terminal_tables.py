"""What the terminal shows of results and of folders."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from polyclinic.api.console import CONSOLE

if TYPE_CHECKING:
    from polyclinic.data.check import Summary
    from polyclinic.data.folder import SiteFolder
    from polyclinic.data.understanding import Understood
    from polyclinic.predict.evaluating import Evaluation


def show_summary(paths: Sequence[Path]) -> None:
    """The comparison table of runs."""
    from polyclinic.report import summary_table

    CONSOLE.print(summary_table(paths))


def show_check(summary: "Summary") -> None:
    """What a folder of sites holds, and its errors and warnings."""
    heads = ("site", "cases", "patients", "train/val/test", "size", "classes", "labels")
    table = Table(*heads, title=f"{summary.task.name}, sites: {len(summary.sites)}")
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


def show_evaluation(evaluation: "Evaluation") -> None:
    """Means of models at sites, with intervals."""
    from polyclinic.evaluation.intervals import NONE_FOR_FEW
    from polyclinic.predict.pages import score

    heads = ("model", "site", "region", *(m.title for m in evaluation.metrics.values()))
    table = Table(*heads, title="mean over cases (95 % interval, bootstrap over patients)")
    lines: dict[tuple[str, str, str], list[str]] = {}
    for model, facts in evaluation.summary():
        lines.setdefault((model, facts.site, facts.region), []).append(score(facts))
    for names, cells in lines.items():
        table.add_row(*names, *cells)
    CONSOLE.print(table)
    if any(math.isnan(facts.low) for _, facts in evaluation.summary()):
        CONSOLE.print(NONE_FOR_FEW)


def show_understood(understood: "Understood") -> None:
    """What a source was understood as, and the files that are left out."""
    heads = ("site", "cases", "of", "patients", "masks", "labels", "slices", "pixels (mm)")
    table = Table(*heads, title=f"{understood.source}: {understood.layout}")
    for site in understood.sites:
        table.add_row(*_understood(site))
    CONSOLE.print(table)
    for line in understood.left_out():
        CONSOLE.print(f"left out: {line}", style="yellow", soft_wrap=True)
    for site in understood.sites:
        for line in site.warnings:
            CONSOLE.print(f"warning: {understood.told(line)}", style="yellow", soft_wrap=True)


def _axis(site: "SiteFolder") -> str:
    """Along which axis the site's volumes are cut."""
    from polyclinic.data.formats.instances import is_dicom
    from polyclinic.data.formats.volume import usual_axis

    usual = {usual_axis(dicom=is_dicom(case.image)) for case in site.cases if case.volume}
    return site.toml.axis or ", ".join(sorted(usual))


def _understood(site: "SiteFolder") -> tuple[str, ...]:
    volumes = {case.volume for case in site.cases if case.volume}
    pictures = sum(case.volume is None for case in site.cases)
    parts = [(len(volumes), "volumes"), (pictures, "pictures")]
    masks = sum(case.mask is not None for case in site.cases)
    kinds = [kind for kind in site.kinds if kind != "mask"]
    spacings = {
        f"{case.spacing[0]:.3g}×{case.spacing[1]:.3g}" for case in site.cases if case.spacing
    }
    return (
        site.name,
        str(len(site.cases)),
        ", ".join(f"{count} {what}" for count, what in parts if count),
        str(len({case.patient for case in site.cases})),
        str(masks),
        ", ".join(kinds) or "none",
        _axis(site) if volumes else "",
        ", ".join(sorted(spacings)[:3]) + ("…" if len(spacings) > 3 else ""),
    )
