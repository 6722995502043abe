"""What the server asks of a site, what the site responds, and how the server checks that.

States of a site have version numbers that grow with every stage; the server names the version it
believes in, so that a site which lost or gained one cannot go on unnoticed.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

import torch
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter, ValidationError
from torch import Tensor

from polyclinic.data.errors import listed
from polyclinic.engine.flower.carrier import PayloadError
from polyclinic.engine.flower.transport import Failure
from polyclinic.engine.flower.wire import Payload
from polyclinic.federation.message import Message
from polyclinic.federation.method import DISCLOSED
from polyclinic.federation.weights import Weights
from polyclinic.runs import SiteInfo, Split
from polyclinic.runs.files import plain

NO_STATE = -1  # before a site's first visit
MOST = 10**9  # of anything that a site counts: cases, images, steps, seconds

Count = Annotated[int, Field(ge=0, le=MOST)]
Seconds = Annotated[float, Field(ge=0, le=MOST, allow_inf_nan=False)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
NoteName = Annotated[str, StringConstraints(pattern=r"\A[A-Za-z0-9 .-]{1,40}\z")]
MOST_NOTES = 40
CaseNumber = Annotated[str, StringConstraints(pattern=r"\A(val|test) ([0-9]{1,9}|mean)\z")]
Shape = tuple[str, tuple[int, ...]]  # type and size


class _Content(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class _Request(_Content):
    study: str  # the settings of this one run, as TOML, without any folder
    run: str  # a token that no other run has


class GreetingRequest(_Request):
    """Who are you, will you take part, and what have you got?"""

    kind: Literal["greeting"] = "greeting"


class _VisitRequest(_Request):
    sites: tuple[tuple[str, int, str, int], ...]  # name, index, kind, training cases
    number: int  # of the round
    reads: int  # the version of the state to start from
    keep: tuple[int, ...]  # versions that may still be asked for


class StageRequest(_VisitRequest):
    """Work on a stage; the message comes with it."""

    kind: Literal["stage"] = "stage"
    stage: str
    writes: int  # the version of the state that comes out
    encoding: str


class ScoreRequest(_VisitRequest):
    """Score the model, after finalizing on a copy where a message comes with it."""

    kind: Literal["score"] = "score"
    split: Split
    metrics: tuple[str, ...]
    finalize: bool


Request = GreetingRequest | StageRequest | ScoreRequest


class GreetingResponse(_Content):
    """What a site has and runs."""

    about: SiteInfo
    scorable: Count  # validation cases with masks
    version: str
    packages: dict[str, str] = {}  # whose code the study uses here beside Polyclinic, with versions


class StageResponse(_Content):
    """What the work on a stage took, beside the reply message."""

    number: int
    stage: str
    loss: Finite | None  # None where nothing was trained
    seconds: Seconds
    images: Count


class ScoreResponse(_Content):
    """The scores of a site's model: case, region, metric and value; notes on a method's parts."""

    number: int
    split: Split
    rows: tuple[tuple[CaseNumber, str, str, Finite], ...]
    notes: Annotated[dict[NoteName, Finite], Field(max_length=MOST_NOTES)] = {}


Response = TypeVar("Response", GreetingResponse, StageResponse, ScoreResponse)
_REQUEST: TypeAdapter[Request] = TypeAdapter(Annotated[Request, Field(discriminator="kind")])


def requesting(request: Request) -> dict[str, Any]:
    """The header of a payload with this request."""
    return {"request": request.model_dump(mode="json")}


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
        raise PayloadError(plain(f"it refused: {payload.header['refused']}"))
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


def check_message(message: Message, known: Weights) -> None:
    """Refuse a message with weights that the network does not share, or with invalid values."""
    unknown = sorted(message.weights.names - known.names)
    if unknown:
        raise PayloadError(
            f"its message has weights that are not shared: {listed(unknown, most=3)}"
        )
    other = [n for n, tensor in message.weights.items() if tensor.shape != known[n].shape]
    if other:
        raise PayloadError(f"its message has weights of another shape: {listed(other, most=3)}")
    tensors = {**message.weights, **message.extras}
    bad = [n for n, t in tensors.items() if t.is_floating_point() and not torch.isfinite(t).all()]
    bad += [name for name, number in message.numbers.items() if not math.isfinite(number)]
    if bad:
        raise PayloadError(f"its message has values that are not numbers: {listed(bad, most=3)}")
    if not all(0 <= message.numbers.get(name, -1) <= MOST for name in ("images", "steps")):
        raise PayloadError("its message does not say with how many images and steps it trained")


def check_disclosure(message: Message, network: Weights) -> None:
    """Refuse what a site discloses if another site's network has no place for it."""
    disclosed = {
        name.removeprefix(f"{DISCLOSED}/"): tensor for name, tensor in message.extras.items()
    }
    other = [
        name
        for name, tensor in disclosed.items()
        if name not in network or _shape(tensor) != _shape(network[name])
    ]
    if other:
        raise PayloadError(f"it discloses what the network does not have: {listed(other, most=3)}")


@dataclass(frozen=True)
class Signature:
    """What a message consists of, without its values."""

    weights: frozenset[tuple[str, tuple[int, ...]]]
    extras: tuple[tuple[str, Shape], ...]

    @classmethod
    def of(cls, message: Message) -> Signature:
        """The signature of a message."""
        extras = sorted((name, _shape(tensor)) for name, tensor in message.extras.items())
        return cls(frozenset(message.weights.layout.shapes), tuple(extras))


def conflicts(signatures: Mapping[str, Signature], shared: Weights) -> dict[str, str]:
    """The sites whose messages are unlike most others, and in what."""
    whole = frozenset(shared.layout.shapes)
    counts = Counter(each.weights for each in signatures.values())
    usual = max(counts, key=lambda each: (counts[each], each == whole), default=whole)
    like = [each.extras for each in signatures.values() if each.weights == usual]
    votes = Counter(extra for extras in like for extra in extras).most_common()
    shapes = {name: shape for (name, shape), _ in reversed(votes)}
    found = {}
    for site, each in signatures.items():
        weights = sorted({name for name, _ in each.weights ^ usual})
        extras = [name for name, shape in each.extras if shapes.get(name, shape) != shape]
        if weights:
            different = listed(weights, most=3)
            found[site] = f"weights that differ from the other sites' in name or shape: {different}"
        elif extras:
            found[site] = f"extras that differ from the other sites': {listed(extras, most=3)}"
    return found


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


def _shape(tensor: Tensor) -> Shape:
    return str(tensor.dtype), tuple(tensor.shape)
