"""Pages that need nothing beside themselves, out of this folder's templates."""

import base64
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from polyclinic.predict.facts import ScoreFacts

if TYPE_CHECKING:
    from jinja2 import Environment


def rendered(template: str, **facts: Any) -> str:
    """A template with these facts; what stands in them is escaped on pages."""
    return _environment().get_template(template).render(facts)


def streamed(template: str, **facts: Any) -> Iterator[str]:
    """The same piece by piece, so that a long page never stands in memory."""
    return iter(_environment().get_template(template).generate(facts))


def number(value: float, unit: str) -> str:
    """A metric's value as tables print it: shares in per cent, all else with two digits."""
    return f"{value:.2f}" if unit else f"{100 * value:.1f}"


def score(facts: ScoreFacts) -> str:
    """A mean with its interval: `87.2 (85.0–89.1)`, `87.2 (–)` where there is none."""
    mean, low, high = (number(each, facts.unit) for each in (facts.mean, facts.low, facts.high))
    return f"{mean} (–)" if math.isnan(facts.low) else f"{mean} ({low}–{high})"


def data_uri(kind: str, content: bytes) -> str:
    """A whole file as an address, for the source of an image or a link."""
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def templates(package: str, **settings: Any) -> "Environment":
    """The templates of a package; what they name and nobody gives is an error."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(  # noqa: S701 (each says itself what is escaped)
        loader=PackageLoader(package),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        **settings,
    )


def _environment() -> "Environment":
    from jinja2 import select_autoescape

    environment = templates("polyclinic.predict", autoescape=select_autoescape(["html"]))
    environment.filters.update(score=score, number=number)
    return environment
