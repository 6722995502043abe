"""What must hold before anything is trained, and the server that a run starts with."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from polyclinic.config import FederationSettings, Study
from polyclinic.engine.loop import Sites
from polyclinic.engine.site_runner import Assignment, SiteRunner
from polyclinic.federation.combining import refuse_too_few
from polyclinic.federation.server import Server
from polyclinic.networks.parts import EmptySelection, PartError, parameters
from polyclinic.runs import RunError


def refuse_no_validation(study: Study, cases: int, unscored: int) -> None:
    """Raise an error where the best round is wanted but no cases could tell it."""
    if study.evaluation.choose == "best" and not cases:
        needed = (
            "evaluation.choose = 'best' needs validation cases with masks, and no site has any; "
        )
        if unscored:
            raise RunError(
                f"{needed}the split is fine, but what it has for validation ({unscored} cases) has "
                "no mask of a scored region: add masks for some of them, or set choose = 'last'"
            )
        raise RunError(f"{needed}give data.split a second share above 0, or choose = 'last'")


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


def refuse_unsuitable_rule(study: Study) -> None:
    """Raise an error that names every method whose replies the study's rule cannot combine."""
    rule = study.federation.combine
    reasons = {choice.title: choice.built.needs_mean() for choice in study.method}
    if rule != "mean" and any(reasons.values()):
        told = "\n".join(f"  {title}: {reason}" for title, reason in reasons.items() if reason)
        advice = 'take them out of the study, or let it have federation.combine = "mean"'
        raise RunError(f'federation.combine = "{rule}" does not go with\n{told}\n{advice}')


def first_server(federation: FederationSettings, sites: Sites) -> Server:
    """The server before the first round; an error where there are too few sites for the rule."""
    runner = sites.runner
    if runner.assignment.method.pools:  # one reply, and nobody to compare it with
        federation = federation.model_copy(update={"combine": "mean"})
    refuse_too_few(federation, max(1, round(federation.participation * len(sites.trained))))
    stage, *_ = runner.assignment.stages_in(1)
    buffers = runner.shared_in(stage) - parameters(runner.net)
    first = runner.first_weights(stage)
    return Server(sites.trained, first, federation, runner.assignment.seed, buffers=buffers)
