"""What must hold before a run starts, and the server that it starts with."""

from __future__ import annotations

from polyclinic.config import Study
from polyclinic.engine.loop import Sites
from polyclinic.engine.site_runner import SiteRunner
from polyclinic.federation.combining import refuse_too_few
from polyclinic.federation.server import Server
from polyclinic.methods import METHODS
from polyclinic.networks.parts import parameters
from polyclinic.runs import RunError


def refuse_unsuitable_rule(study: Study) -> None:
    """Raise an error that names every method whose replies the study's rule cannot combine."""
    rule = study.federation.combine
    if rule == "mean":
        return
    methods = {each.title: METHODS[each.name](**each.settings) for each in study.method}
    reasons = {title: method.needs_mean() for title, method in methods.items()}
    if any(reasons.values()):
        told = "\n".join(f"  {title}: {reason}" for title, reason in reasons.items() if reason)
        advice = 'take them out of the study, or let it have federation.combine = "mean"'
        raise RunError(f'federation.combine = "{rule}" does not go with\n{told}\n{advice}')


def first_server(study: Study, runner: SiteRunner, sites: Sites) -> Server:
    """The server before the first round; an error where there are too few sites for the rule."""
    federation, assignment = study.federation, runner.assignment
    if assignment.method.pools:  # one reply, and nobody to compare it with
        federation = federation.model_copy(update={"combine": "mean"})
    refuse_too_few(federation, max(1, round(federation.participation * len(sites.trained))))
    buffers = runner.shared - parameters(runner.net)
    first = runner.first_weights()
    return Server(sites.trained, first, federation, assignment.seed, buffers=buffers)
