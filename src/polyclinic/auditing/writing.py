"""An audit as files beside its run: all of it as JSON, the table as CSV, and a figure."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

from polyclinic.auditing.figure import audit_figure
from polyclinic.auditing.membership import ATTACKS, Audit, Finding
from polyclinic.evaluation.membership import RATES, Estimate
from polyclinic.runs import RunFolder

NAME = "audit"


def write_audit(audit: Audit) -> RunFolder:
    """Write audit.json, audit.csv and audit.svg into the run's folder; no case is named in them."""
    run = audit.origins[0].run
    rows = [_row(finding) for finding in audit.findings]
    text = io.StringIO()
    table = csv.DictWriter(text, rows[0], lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    content = {
        "study": run.study.name,
        "method": run.choice.title,
        "seed": run.seed,
        "references": audit.references,
        "attacks": {each.attack: ATTACKS[each.attack] for each in audit.findings},
        "findings": rows,
        "remarks": audit.remarks,
    }
    run.folder.write_atomic(f"{NAME}.csv", text.getvalue())
    run.folder.write_atomic(f"{NAME}.svg", audit_figure(audit.findings))
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
