"""The order of a study's requests: each stage in its round, scores where the study has them.

A site goes by this, whatever the server says: nothing is trained on a finished state, no state is
used for another study, and no stage or score is asked for again and again with other weights.
"""

import json
from collections.abc import Iterable, Mapping
from hashlib import sha256
from importlib.metadata import version
from typing import Any

from polyclinic.config import EvaluationSettings
from polyclinic.config.node_file import Permissions
from polyclinic.engine.flower.protocol import (
    GuestRequest,
    ModelRequest,
    ScoreRequest,
    StageRequest,
    VisitRequest,
)
from polyclinic.engine.flower.wire import Payload
from polyclinic.engine.run import Assignment

OF_OTHERS = "score the model of"


class OutOfOrder(ValueError):
    """A request that the study does not have at this point."""

    refuses = "order"


def study_hash(text: str, packages: Mapping[str, str]) -> str:
    """What a study is known by: all its settings to the last letter, and the code that runs it."""
    versions = {"polyclinic": version("polyclinic"), **packages}
    return sha256(json.dumps([text, versions], sort_keys=True).encode()).hexdigest()


def stage_of(request: VisitRequest) -> str:
    """What a request is for, as the ledger calls it."""
    match request:
        case StageRequest():
            return request.stage
        case ScoreRequest():
            return f"score {request.split}{' as trained' if request.model == 'trained' else ''}"
        case ModelRequest():
            return "disclose the model"
        case GuestRequest():
            return f"{OF_OTHERS} {request.owner}"


def asked_for(request: VisitRequest, payload: Payload) -> str:
    """A hash of what a request asks with: message and state, whichever the attempt."""
    contents = payload.header.get("message") if payload.tensors else None
    words = f"{stage_of(request)} {request.reads} {contents} {payload.digest()}"
    return sha256(words.encode()).hexdigest()


def check_stage(
    assignment: Assignment, request: StageRequest, state: Mapping[str, str] | None
) -> None:
    """Refuse a stage that its round does not have, or on a state that is not from before it.

    `state` is what is noted about the state to start from.
    """
    here = _place(assignment, request.number, request.stage)
    if here is None:
        raise OutOfOrder(f"round {request.number} of the study has no stage {request.stage!r}")
    if state is not None:
        before = _place(assignment, int(state["round"]), state["stage"])
        if before is None or before >= here:
            raise OutOfOrder(
                f"stage {request.stage!r} of round {request.number} cannot follow stage "
                f"{state['stage']!r} of round {state['round']}"
            )


def check_score(
    assignment: Assignment,
    evaluation: EvaluationSettings,
    request: ScoreRequest,
    state: Mapping[str, str] | None,
) -> None:
    """Refuse scores that the study does not ask for, or of a model that is not from then."""
    last = assignment.rounds
    validates = request.split == "val"
    due = evaluation.due(request.number, last) if validates else 0 < request.number <= last
    metrics = evaluation.validated if validates else evaluation.metrics
    trained = request.model == "trained"
    wanted = not trained or (not validates and evaluation.scores != "shared")
    if not (due and wanted) or request.metrics != metrics or request.finalize is not validates:
        raise OutOfOrder(
            f"the study does not score {request.split} cases in this way after round "
            f"{request.number}"
        )
    early = validates or trained
    if early and state is not None and int(state["round"]) > request.number:
        raise OutOfOrder(f"a state of round {state['round']} is not that of {request.number}")


def check_final(
    assignment: Assignment,
    evaluation: EvaluationSettings,
    request: ModelRequest | GuestRequest,
    state: Mapping[str, str] | None,
) -> None:
    """Refuse to compare final models where the study does not, or before there are any."""
    after = assignment.rounds + 1
    if not evaluation.cross_site or request.number != after:
        raise OutOfOrder(f"the study does not compare final models after round {request.number}")
    last = (after, assignment.after[-1].name)
    if state is None or (int(state["round"]), state["stage"]) != last:
        raise OutOfOrder("the site has no final model yet")
    if isinstance(request, GuestRequest) and request.owner not in {
        s.name for s in assignment.sites
    }:
        raise OutOfOrder(f"the study has no site {request.owner!r} whose model could be scored")


def check_repeats(
    lines: Iterable[Mapping[str, Any]], facts: Mapping[str, Any], allow: Permissions, *, noise: bool
) -> None:
    """Refuse what goes beyond each stage and score of a run once, and some other messages.

    The same message once more tells nothing new, but with `noise`, whose mean over answers is none.
    """
    same = ("study", "run")
    asked = {(facts["round"], facts["stage"], facts["asked"], "now" if noise else "")} | {
        (line["round"], line["stage"], line["asked"], line["hash"] if line.get("noise") else "")
        for line in lines
        if "asked" in line
        and not line.get("again")
        and all(line.get(key) == facts[key] for key in same)
    }
    places = {(number, stage) for number, stage, *_ in asked}
    if len(asked) - len(places) > allow.repeats:
        raise OutOfOrder(
            f"{facts['stage']!r} of round {facts['round']} is asked for once more, and in a whole "
            f"run only allow.repeats = {allow.repeats} may be asked for again"
        )
    if sum(stage.startswith(OF_OTHERS) for _, stage in places) > allow.validations:
        raise OutOfOrder(
            f"more models of other sites are to be scored than allow.validations = "
            f"{allow.validations}"
        )


def _place(assignment: Assignment, number: int, stage: str) -> tuple[int, int] | None:
    """Where a stage comes in the run; None where it does not."""
    if number == 0:
        stages = assignment.method.before()
    elif 0 < number <= assignment.rounds:
        stages = assignment.stages_in(number)
    else:
        stages = assignment.after if number == assignment.rounds + 1 else ()
    names = [each.name for each in stages]
    return (number, names.index(stage)) if stage in names else None
