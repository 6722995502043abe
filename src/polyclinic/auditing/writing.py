"""An audit as files beside its run: all of it as JSON, the table as CSV, and a figure."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from polyclinic.auditing.membership import ATTACKS, Audit, Finding
from polyclinic.evaluation.membership import RATES, Estimate
from polyclinic.report.figures.style import (
    WIDTH,
    Margins,
    canvas,
    quiet_title,
    shortened,
    style,
    to_data_uri,
)
from polyclinic.runs import RunFolder, csv_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes


NAME = "audit"


def write_audit(audit: Audit) -> RunFolder:
    """Write audit.json, audit.csv and audit.svg into the run's folder; no case is named in them."""
    run = audit.origins[0].run
    rows = [_row(finding) for finding in audit.findings]
    content = {
        "study": run.study.name,
        "method": run.choice.title,
        "seed": run.seed,
        "references": audit.references,
        "attacks": {each.attack: ATTACKS[each.attack] for each in audit.findings},
        "findings": rows,
        "remarks": audit.remarks,
    }
    run.folder.write_atomic(f"{NAME}.csv", csv_text([rows[0], *(row.values() for row in rows)]))
    run.folder.write_atomic(f"{NAME}.svg", _figure(audit.findings))
    run.folder.write_atomic(f"{NAME}.json", json.dumps(content, indent=2) + "\n")
    return run.folder


def _row(finding: Finding) -> dict[str, Any]:
    row: dict[str, Any] = {
        "site": finding.site,
        "attack": finding.attack,
        "members": finding.members,
        "others": finding.others,
        "patients": finding.patients,
        **_told("auc", finding.success.auc),
    }
    for rate, found in zip(RATES, finding.success.found, strict=True):
        row.update(_told(f"found_at_{100 * rate:g}_percent", found))
    return row


def _told(name: str, estimate: Estimate) -> dict[str, float | None]:
    return {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}


def _figure(findings: Sequence[Finding]) -> bytes:
    """An SVG: panels for the area and each rate, a row for each site, a colour for each attack."""
    sites = list(dict.fromkeys(each.site for each in findings))
    margins = Margins(left=0.35 + 0.075 * max(len(shortened(site)) for site in sites), bottom=0.7)
    titles = ["area under the curve", *(f"members found at {_percent(r)}" for r in RATES)]
    height = 0.45 * len(sites) + 1.1
    with canvas(1, len(titles), (WIDTH, height), margins, sharey=True) as (figure, ((*axes,),)):
        for place, (panel, title) in enumerate(zip(axes, titles, strict=True)):
            quiet_title(panel, title)
            panel.axvline((0.5, *RATES)[place], color="#5b6675", linestyle=(0, (4, 3)), lw=1)
            panel.set_xlim(-0.02, 1.02)
            panel.grid(axis="y", visible=False)
            for number, attack in enumerate(ATTACKS):
                for each in findings:
                    if each.attack == attack:
                        value = (each.success.auc, *each.success.found)[place]
                        _draw(panel, sites.index(each.site) + 0.22 * (number - 1), value, number)
        axes[0].set_yticks(range(len(sites)), [shortened(site) for site in sites])
        axes[0].set_ylim(len(sites) - 0.4, -0.6)
        used = [each.attack for each in findings]
        drawn = [
            axes[0].plot([], [], "o", color=style(n).colour, label=attack)[0]
            for n, attack in enumerate(ATTACKS)
            if attack in used
        ]
        figure.legend(handles=drawn, loc="lower left", ncols=len(drawn), frameon=False)
        return to_data_uri(figure).file("svg")


def _draw(panel: "Axes", row: float, estimate: Estimate, number: int) -> None:
    colour = style(number).colour
    if estimate.low is not None and estimate.high is not None:
        panel.hlines([row], estimate.low, estimate.high, colors=colour, lw=1.8)
    panel.plot([estimate.value], [row], "o", color=colour, ms=5)


def _percent(rate: float) -> str:
    return f"{100 * rate:g} % false positives"
