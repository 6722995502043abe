"""Final models that go to other sites and are scored there: a site's half, within its policy."""

from dataclasses import replace
from typing import Any

from polyclinic.engine.cross_site import guest_scores
from polyclinic.engine.flower.carrier import PayloadError
from polyclinic.engine.flower.leaving import leaving_scores
from polyclinic.engine.flower.open_runs import SiteRun
from polyclinic.engine.flower.policy import Policy
from polyclinic.engine.flower.protocol import (
    GuestRequest,
    ModelRequest,
    ModelResponse,
    ScoreResponse,
    responding,
)
from polyclinic.engine.flower.sealing import sealed
from polyclinic.engine.flower.wire import Payload, pack
from polyclinic.engine.states import SiteState
from polyclinic.federation.message import Message
from polyclinic.federation.method import DISCLOSED
from polyclinic.federation.weights import group
from polyclinic.methods.calibration import disclose
from polyclinic.runs import SiteInfo


def compare_models(
    policy: Policy,
    run: SiteRun,
    info: SiteInfo,
    state: SiteState | None,
    request: ModelRequest | GuestRequest,
    message: Message,
) -> tuple[Payload, dict[str, Any]]:
    """What is private of the site's model, or the scores of another's; and facts for the ledger."""
    if isinstance(request, ModelRequest):
        return _disclosed(policy, run, info, state, request, message), {}
    policy.check_cross_site()
    model = group(message.extras, f"{DISCLOSED}/{request.owner}")
    if not model:
        raise PayloadError(f"the model of {request.owner} cannot be opened or used here")
    rows, cases = guest_scores(run.runner, info, run.data, state, model)
    left = leaving_scores(policy.allow.scores, "test", rows, cases, {})
    response = ScoreResponse(
        number=request.number, split="test", rows=left.rows, spreads=left.spreads
    )
    return Payload(responding(response)), {"bare": "scores"}


def _disclosed(
    policy: Policy,
    run: SiteRun,
    info: SiteInfo,
    state: SiteState | None,
    request: ModelRequest,
    message: Message,
) -> Payload:
    method = run.runner.assignment.method
    policy.check_cross_site(method.predicts_with(run.runner.net))
    reply = disclose(method, replace(run.runner.opened(info, run.data, state), message=message))
    policy.check_message(reply)
    policy.check_recipients(request.recipients)
    reply = sealed(reply, request.recipients, request.run)
    return pack(responding(ModelResponse(number=request.number)), reply, request.encoding)
