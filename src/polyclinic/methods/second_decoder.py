"""Second decoders: for each site one that the server makes from all sites' decoders."""

from collections.abc import Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor

from polyclinic.federation.message import Message
from polyclinic.federation.mixing import mix
from polyclinic.federation.server import Server
from polyclinic.federation.weights import Layout, Weights
from polyclinic.networks.parts import Names
from polyclinic.networks.two_branches import SECOND
from polyclinic.seeds import torch_generator

Strategy = Literal["aggregated", "nearest", "cyclic", "random", "none"]
MAIN = ("decoder", "head")  # parts of the network


def start_second(server: Server) -> None:
    """Give every site the common first decoder as its second one."""
    first = server.weights.pick(names_in(server.weights, MAIN))
    for info in server.sites:
        server.memory[f"{SECOND}/{info.name}"] = first.flat.clone()


def make_second(
    server: Server,
    replies: Mapping[str, Message],
    strategy: Strategy,
    affinity: Tensor,
    made_from: Sequence[str] = MAIN,
) -> None:
    """Make every site's second decoder from the main or the second decoders in the replies."""
    names = names_in(server.weights, made_from)
    parts = {site: reply.weights.pick(names) for site, reply in replies.items()}
    places = {info.name: info.index for info in server.sites}
    present = [places[site] for site in parts]
    rng = torch_generator(server.seed, server.round, "second decoder")
    shares = shares_of_decoders(strategy, affinity, present, rng)
    for info in server.sites:
        made = mix(parts, shares[info.index].tolist())
        server.memory[f"{SECOND}/{info.name}"] = made.flat


def with_second(server: Server, site: str) -> Weights:
    """The shared weights and, behind or among them, the site's second decoder if one was made."""
    made = server.memory.get(f"{SECOND}/{site}")
    if made is None:
        return server.weights
    shapes = server.weights.layout.shapes
    names = names_in(server.weights, MAIN)
    second = Layout(tuple((f"{SECOND}.{name}", shape) for name, shape in shapes if name in names))
    if second.shapes[0][0] in server.weights:
        among = server.weights.copy()
        among.load(Weights(second, made))
        return among
    return Weights(Layout(shapes + second.shapes), torch.cat((server.weights.flat, made)))


def names_in(weights: Weights, parts: Sequence[str]) -> Names:
    """The names of the weights in these parts of the network."""
    return frozenset(name for name in weights if name.partition(".")[0] in parts)


def prompt_affinity(prompts: Tensor) -> Tensor:
    """How alike sites' prompts (N×D) are: cosines, 0 instead of below, and 1 with itself."""
    rows = prompts.double()
    lengths = rows.norm(dim=1, keepdim=True).clamp(min=1e-12)
    units = rows / lengths
    cosines = (units[:, None] * units).sum(2)  # a product of matrices may round each half apart
    return cosines.clamp(0, 1).fill_diagonal_(1)


def shares_of_decoders(
    strategy: Strategy, affinity: Tensor, present: Sequence[int], rng: torch.Generator
) -> Tensor:
    """What each site's second decoder (a row) consists of: shares of the decoders present.

    "aggregated" takes all by affinity, "nearest" the likest other one, "cyclic" that of the site
    before it, "random" the same in an order drawn anew. Only who is alone gets its own.
    """
    sites = len(affinity)
    if strategy == "aggregated":
        shares = affinity[:, list(present)]
        nobody = shares.sum(1, keepdim=True) == 0
        shares = torch.where(nobody, torch.ones_like(shares), shares)
        return shares / shares.sum(1, keepdim=True)
    drawn = strategy == "random"
    order = torch.randperm(sites, generator=rng).tolist() if drawn else list(range(sites))
    shares = torch.zeros(sites, len(present), dtype=torch.float64)
    for site in range(sites):
        others = [each for each in present if each != site] or list(present)
        if strategy == "nearest":
            chosen = max(others, key=lambda each: float(affinity[site, each]))
        else:
            chosen = _before(site, order, others)
        shares[site, list(present).index(chosen)] = 1
    return shares


def _before(site: int, order: Sequence[int], others: Sequence[int]) -> int:
    """The last of the others that comes before the site in a circle."""
    place = order.index(site)
    circle = [order[(place - back) % len(order)] for back in range(1, len(order) + 1)]
    return next(each for each in circle if each in others)
