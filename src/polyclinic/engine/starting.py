"""What must hold before anything is trained."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from polyclinic.config import Study
from polyclinic.engine.site_runner import Assignment, SiteRunner
from polyclinic.networks.parts import EmptySelection, PartError
from polyclinic.runs import RunError


def refuse_no_validation(study: Study, cases: int) -> None:
    """Raise an error where the best round is wanted but no cases could tell it."""
    if study.evaluation.choose == "best" and not cases:
        raise RunError(
            "evaluation.choose = 'best' needs validation cases with masks, and no site has any; "
            "give data.split a second share above 0, or choose = 'last'"
        )


def refuse_unsuitable(assignments: Mapping[str, Assignment]) -> None:
    """Raise an error that names every method which cannot work with the network, and why."""
    mistakes = []
    for title, assignment in assignments.items():
        try:
            SiteRunner(assignment, torch.device("cpu"))
        except (EmptySelection, PartError) as error:
            mistakes.append(f"{title}: {error}")
    if mistakes:
        raise RunError("\n".join(mistakes))
