"""What the server asks of a site, what the site responds, and how the server checks that.

States of a site have version numbers that grow with every stage; the server names the version it
believes in, so that a site which lost or gained one cannot go on unnoticed.
"""

import json
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter, ValidationError

from polyclinic.engine.flower.carrier import PayloadError
from polyclinic.engine.flower.transport import Failure
from polyclinic.engine.flower.wire import Payload
from polyclinic.runs import ScoredModel, SiteInfo, Split
from polyclinic.runs.files import plain

NO_STATE = -1  # before a site's first visit
MOST = 10**9  # of anything that a site counts: cases, images, steps, seconds

Count = Annotated[int, Field(ge=0, le=MOST)]
Seconds = Annotated[float, Field(ge=0, le=MOST, allow_inf_nan=False)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
NoteName = Annotated[str, StringConstraints(pattern=r"\A[A-Za-z0-9 .-]{1,40}\z")]
MOST_NOTES = 40
WAITS = "approval"  # the code of a refusal until the people at the site approve the study
SealingKey = Annotated[str, StringConstraints(pattern=r"\A[0-9a-f]{64}\z")]
CaseNumber = Annotated[str, StringConstraints(pattern=r"\A(val|test) ([0-9]{1,9}|mean)\z")]


class Waits(PayloadError):
    """The people at a site have not approved the study yet."""


class _Content(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class IntroductionRequest(_Content):
    """Who are you?"""

    kind: Literal["introduction"] = "introduction"


class _Request(_Content):
    study: str  # all of its settings, as TOML, without any folder and any other site
    method: str  # the title of the one that this run is of
    seed: int  # of this run
    sites: tuple[str, ...]  # in the study's order; all but one's own under other names


class GreetingRequest(_Request):
    """Will you take part, and what have you got?"""

    kind: Literal["greeting"] = "greeting"


class _VisitRequest(_Request):
    run: str  # a token that no other run has
    labels: str  # the kind that the site said it trains on
    train: int  # the number of training cases that it said it has
    number: int  # of the round
    reads: int  # the version of the state to start from
    keep: tuple[int, ...]  # versions that may still be asked for


class StageRequest(_VisitRequest):
    """Work on a stage; the message comes with it."""

    kind: Literal["stage"] = "stage"
    stage: str
    writes: int  # the version of the state that comes out
    encoding: str
    recipients: tuple[SealingKey, ...] = ()  # the other sites, where the stage discloses


class ScoreRequest(_VisitRequest):
    """Score the model, after finalizing on a copy where a message comes with it."""

    kind: Literal["score"] = "score"
    split: Split
    metrics: tuple[str, ...]
    finalize: bool
    model: ScoredModel = "shared"


class ModelRequest(_VisitRequest):
    """Disclose what is private of the final model; the server's fingerprints come with it."""

    kind: Literal["model"] = "model"
    encoding: str
    recipients: tuple[SealingKey, ...]  # the other sites


class GuestRequest(_VisitRequest):
    """Score another site's final model, which comes with it, on the test cases."""

    kind: Literal["guest"] = "guest"
    owner: str  # as this site hears of it


VisitRequest = StageRequest | ScoreRequest | ModelRequest | GuestRequest
RunRequest = GreetingRequest | VisitRequest
Request = IntroductionRequest | RunRequest


class GreetingResponse(_Content):
    """What a site has and runs."""

    about: SiteInfo
    scorable: Count  # validation cases with masks
    version: str
    packages: dict[str, str] = {}  # whose code the study uses here beside Polyclinic, with versions
    sealing: SealingKey  # what others disclose to the site is encrypted with it


class StageResponse(_Content):
    """What the work on a stage took, beside the reply message."""

    number: int
    stage: str
    loss: Finite | None  # None where nothing was trained
    seconds: Seconds
    images: Count


class ScoreResponse(_Content):
    """The scores of a site's model, and notes on a method's parts.

    Each is a case, a region, a metric, a value and the number of the case's patient.
    """

    number: int
    split: Split
    rows: tuple[tuple[CaseNumber, str, str, Finite, Count], ...]
    notes: Annotated[dict[NoteName, Finite], Field(max_length=MOST_NOTES)] = {}
    spreads: tuple[tuple[str, str, Finite], ...] = ()  # region, metric, deviation over cases


class ModelResponse(_Content):
    """The final model is disclosed, in the message that comes with it."""

    number: int


Response = TypeVar("Response", GreetingResponse, StageResponse, ScoreResponse, ModelResponse)
_REQUEST: TypeAdapter[Request] = TypeAdapter(Annotated[Request, Field(discriminator="kind")])


def requesting(request: Request) -> dict[str, Any]:
    """The header of a payload with this request."""
    return {"request": request.model_dump(mode="json")}


def responding(response: BaseModel) -> dict[str, Any]:
    """The header of a payload with this response."""
    return {"response": response.model_dump(mode="json")}


def read_request(payload: Payload) -> Request:
    """The request in a payload; PayloadError where it is none."""
    return _checked(_REQUEST, payload.header.get("request"), "request")


def read_response(
    kind: type[Response], site: str, reply: bytes | Failure, most: float
) -> tuple[Response, Payload]:
    """The response of a site that did what it was asked, in its payload; PayloadError if not."""
    if isinstance(reply, Failure):
        raise PayloadError(reply.reason)
    try:
        payload = Payload.from_bytes(reply, most)
    except PayloadError as error:
        raise PayloadError(plain(f"its reply cannot be read: {error}")) from error
    said = payload.header.get("site")
    if said != site:
        raise PayloadError(plain(f"it answered under another name: {str(said)[:50]!r}"))
    if "refused" in payload.header:
        reason = plain(f"it refused: {payload.header['refused']}")
        raise Waits(reason) if payload.header.get("code") == WAITS else PayloadError(reason)
    response = _checked(TypeAdapter(kind), payload.header.get("response"), "response")
    return response, payload


def check_about(site: str, about: SiteInfo) -> None:
    """Refuse what a site says of itself where it cannot be true."""
    if about.name != site:
        raise PayloadError(plain(f"its data are those of a site called {about.name!r}"))
    counts = (about.train, about.val, about.test)
    words = (about.kind, about.annotates)
    if not all(0 <= count <= MOST for count in counts) or not all(map(str.isprintable, words)):
        raise PayloadError("it does not say how many cases of which kind it has")


def _checked(adapter: TypeAdapter[Any], content: Any, what: str) -> Any:
    try:
        # Strictness of Python values would refuse lists for tuples, which is all that JSON has.
        return adapter.validate_json(json.dumps(content))
    except (ValidationError, ValueError) as error:
        found = error.errors() if isinstance(error, ValidationError) else []
        places = ", ".join(".".join(map(str, each["loc"])) or "all" for each in found[:3])
        raise PayloadError(
            plain(f"it is no {what} that this version understands ({places})")
        ) from error
