"""What the server asks of a site and what the site answers, beside the messages themselves.

States of a site have version numbers that grow with every stage; the server names the version it
believes in, so that a site which lost or gained one cannot go on unnoticed.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from polyclinic.engine.flower.payload import PayloadError
from polyclinic.runs import AboutSite, Split

NO_STATE = -1  # before a site's first visit


class _Said(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class _Ask(_Said):
    study: str  # the settings of this one run, as TOML, without any folder
    run: str  # a token that no other run has


class Hello(_Ask):
    """Who are you, will you take part, and what have you got?"""

    kind: Literal["hello"] = "hello"


class _Visit(_Ask):
    sites: tuple[tuple[str, int, str, int], ...]  # name, index, kind, images
    number: int  # of the round
    reads: int  # the version of the state to start from
    keep: tuple[int, ...]  # versions that may still be asked for


class Work(_Visit):
    """Work on a stage; the message comes with it."""

    kind: Literal["work"] = "work"
    stage: str
    writes: int  # the version of the state that comes out
    encoding: str


class Score(_Visit):
    """Score the model, after finalizing on a copy where a message comes with it."""

    kind: Literal["score"] = "score"
    split: Split
    metrics: tuple[str, ...]
    finalize: bool


Ask = Hello | Work | Score


class Welcome(_Said):
    """The answer to a hello."""

    about: AboutSite
    scorable: int  # validation cases with masks
    version: str
    packages: dict[str, str] = {}  # whose code the study uses here beside Polyclinic, with versions


class Worked(_Said):
    """The answer to work, beside the reply message."""

    number: int
    stage: str
    loss: float
    seconds: float
    images: int


class Rows(_Said):
    """The answer to a wish for scores: case, region, metric and value."""

    number: int
    split: Split
    rows: tuple[tuple[str, str, str, float], ...]


Answer = TypeVar("Answer", Welcome, Worked, Rows)
_ASK: TypeAdapter[Ask] = TypeAdapter(Annotated[Ask, Field(discriminator="kind")])


def read_ask(content: Any) -> Ask:
    """The ask in a payload's text; PayloadError where it is none."""
    return _checked(_ASK, content, "ask")


def read_answer(kind: type[Answer], content: Any) -> Answer:
    """The answer in a payload's text; PayloadError where it is not of this kind."""
    return _checked(TypeAdapter(kind), content, "answer")


def _checked(adapter: TypeAdapter[Any], content: Any, what: str) -> Any:
    try:
        # Strictness of Python values would refuse lists for tuples, which is all that JSON has.
        return adapter.validate_json(_json(content))
    except ValidationError as error:
        places = ", ".join(".".join(map(str, each["loc"])) or "all" for each in error.errors())
        raise PayloadError(f"it is no {what} that this version understands ({places})") from error


def _json(content: Any) -> str:
    import json

    return json.dumps(content)
