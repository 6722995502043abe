"""What methods cost beside FedAvg, as `make method-costs` measured it into costs.json."""

from functools import cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict, TypeAdapter

FILE = Path(__file__).with_name("costs.json")


class Exchange(BaseModel):
    """Traffic and work of all sites, over those of a round of FedAvg on the same network.

    `receives` and `sends` name the parts of the network and the extras that travel. `images` pass
    through all training, `steps` are those of the optimizer alone.
    """

    model_config = ConfigDict(frozen=True)

    receives: tuple[str, ...] = ()
    sends: tuple[str, ...] = ()
    down: float = 0.0
    up: float = 0.0
    steps: float = 0.0
    images: float = 0.0


class Cost(BaseModel):
    """What a method took before the rounds, in the last one and after it, and what is kept.

    `keeps` names what a site needs again at its next visit: parts of the network, and memory.
    `site_keeps` is a site's state between rounds, `server_keeps` the server's weights and memory,
    both over the size of FedAvg's model. A finishing step has only what comes after.
    """

    model_config = ConfigDict(frozen=True)

    network: str
    before: Exchange = Exchange()
    round: Exchange = Exchange()
    after: Exchange = Exchange()
    keeps: tuple[str, ...] = ()
    site_keeps: float = 0.0
    server_keeps: float = 0.0


COSTS = TypeAdapter(dict[str, Cost])


@cache
def measured_costs() -> dict[str, Cost]:
    """The costs of all methods and finishing steps by name."""
    return COSTS.validate_json(FILE.read_bytes())


def cost_lines(cost: Cost) -> list[str]:
    """A cost in words: what travels when, how much of it, and what is kept."""
    told = {
        "each round": cost.round,
        "before the first round": cost.before,
        "after the last round": cost.after,
    }
    lines = [f"{when}: {_exchange(each)}" for when, each in told.items() if each != Exchange()]
    if cost.round != Exchange():
        lines.append(
            f"kept between rounds: at a site {_times(cost.site_keeps)}{_listed(cost.keeps)}, "
            f"at the server {_times(cost.server_keeps)}"
        )
    return lines


def _exchange(each: Exchange) -> str:
    down = f"down {_times(each.down)}" + _listed(each.receives)
    up = f"up {_times(each.up)}" + _listed(each.sends)
    work = f"steps {_times(each.steps)}"
    if each.images != each.steps:
        work += f", images trained on {_times(each.images)}"
    return f"{down}, {up}, {work}"


def _times(value: float) -> str:
    """A ratio; numbers alone are thousands of times smaller than a model."""
    return "< 0.001×" if 0 < value < 0.001 else f"{value:.3g}×"


def _listed(names: tuple[str, ...]) -> str:
    return f" ({', '.join(names)})" if names else ""
