"""FedLPPA: prompts, a second decoder per site (Lin et al., IEEE TMI 2024, arXiv 2402.17502)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal, cast

import torch
from pydantic import Field
from torch import Tensor

from polyclinic.data.cases import Batch
from polyclinic.federation.message import Message
from polyclinic.federation.server import Server
from polyclinic.federation.site import Site
from polyclinic.federation.weights import Weights
from polyclinic.methods.learned_mixing import BlendingMethod, Mixing
from polyclinic.methods.second_decoder import (
    MAIN,
    Strategy,
    make_second,
    prompt_affinity,
    start_second,
    with_second,
)
from polyclinic.methods.site_contrast import swapped
from polyclinic.networks.attention import Attention, ChannelWeights
from polyclinic.networks.contract import Segmenter
from polyclinic.networks.parts import Names, everything, parameters, under
from polyclinic.networks.prompted_segmenter import Gate, PromptedSegmenter, PromptForm, Prompts
from polyclinic.networks.two_branches import SECOND
from polyclinic.networks.widening import deepest_side
from polyclinic.runs import MapKind, SiteInfo
from polyclinic.weak import sparsity_of
from polyclinic.weak.kind import SPARSITIES

UNIVERSAL, ROWS = "prompts.universal", "prompts.sites"
PLACE, SPARSITY = "prompts.place", "prompts.sparsity"


@dataclass(frozen=True)
class FedLPPA(BlendingMethod):
    """FedAvg with prompts, and with pseudo labels from a second decoder made for each site.

    Its pseudo labels are a term of `training.weak`, on unless a study sets it to 0.
    """

    fusion: bool = True
    """Fuse prompts into the deepest map (TDF)."""
    universal_prompt: bool = True
    """The prompt common to all sites (UKP)."""
    distribution_prompt: bool = True
    """The prompt of each site's images (DDP)."""
    sparsity_prompt: bool = True
    """The prompt that says how sparse the labels are (ASP)."""
    prompt_size: Annotated[int, Field(ge=1)] | None = None
    """Side of a prompt in pixels; by default that of the deepest map."""
    prompts: PromptForm = "joined"
    """Joined to the deepest map (published); others scale and shift the last map besides."""
    attention: Attention = "dual"
    """Attention in the fusion."""
    channel_weights: ChannelWeights = "distance"
    """Channel attention as released (`distance`) or as printed (`likeness`)."""
    gate: Gate = "residual"
    """Gate in front of the main head."""
    second_decoder: Strategy = "aggregated"
    """How the server makes each site's second decoder (PD)."""
    learned_aggregation: bool = True
    """Blend both decoders (LA)."""
    mixing: Mixing = field(default_factory=lambda: Mixing(iterations=2))
    """How the blend is learned."""
    second_start: Literal["own", "copy"] = "own"
    """Whether second decoders start from weights of their own or from the main decoder's."""
    second_from: Literal["main", "second"] = "main"
    """What second decoders are made from: main decoders, or second ones, which then travel too."""

    maps: ClassVar[MapKind] = "context"
    mean_only: ClassVar[str] = "every site's second decoder is a mixture of all sites' decoders"

    def weak_terms(self) -> Mapping[str, float]:
        """Pseudo labels of both decoders, with the published weight."""
        return {"pseudo_labels": 0.5} if self.second_decoder != "none" else {}

    def adapt(self, net: Segmenter, sites: tuple[SiteInfo, ...]) -> Segmenter:
        """The network with prompts, a gate at its head and a second decoder."""
        prompts = Prompts(
            len(sites),
            self.prompt_size or deepest_side(net),
            universal=self.universal_prompt,
            distribution=self.distribution_prompt,
            sparsity=self.sparsity_prompt,
        )
        return PromptedSegmenter(
            net,
            prompts=prompts if self.fusion else None,
            attention=self.attention,
            channel_weights=self.channel_weights,
            gate=self.gate,
            form=self.prompts,
            second=None if self.second_decoder == "none" else self.second_start,
        )

    def shares(self, net: Segmenter) -> Names:
        """All but a second decoder that the server makes and what says which site this is."""
        return everything(net) - self.server_made(net) - {PLACE, SPARSITY}

    def server_made(self, net: Segmenter) -> Names:
        """The second decoder, where it is made from main ones."""
        made = self.second_decoder != "none" and self.second_from == "main"
        return under(net, SECOND) if made else frozenset()

    def predicts_with(self, net: Segmenter) -> Names:
        """All but the second decoder."""
        return everything(net) - net.parts().get(SECOND, frozenset())

    def blended(self, net: Segmenter) -> Names:
        """Both decoders with their heads, and what stands before the main head."""
        wanted = {"decoder", "head", "gate", "modulation", SECOND}
        return frozenset(name for name in parameters(net) if name.partition(".")[0] in wanted)

    # The server's half.

    def start(self, server: Server) -> None:
        """Every site's second decoder begins as the common first one, if not as drawn."""
        if self.second_decoder != "none" and self.second_start == "copy":
            start_second(server)

    def message(self, server: Server, info: SiteInfo) -> Message:
        """The shared weights and the second decoder made for this site."""
        if self.second_decoder == "none":
            return Message(server.weights)
        return Message(with_second(server, info.name))

    def combine(self, server: Server, replies: Mapping[str, Message]) -> None:
        """Average; keep each site's prompt as its own site sent it; make the second decoders."""
        before = server.weights
        super().combine(server, replies)
        keep_own_rows(server, before, replies)
        affinity = self.affinity(server)
        if self.fusion:
            server.note("affinity", affinity)
        if self.second_decoder != "none":
            made_from = MAIN if self.second_from == "main" else (SECOND,)
            make_second(server, replies, self.second_decoder, affinity, made_from)

    def affinity(self, server: Server) -> Tensor:
        """How alike the sites' prompts are; without prompts all are alike."""
        count = len(server.sites)
        learned = [
            server.weights[name].flatten(1).expand(count, -1).cpu()
            for name in (UNIVERSAL, ROWS)
            if name in server.weights
        ]
        return prompt_affinity(torch.cat(learned, 1) if learned else torch.ones(count, 1))

    # The site's half.

    def receive(self, site: Site) -> None:
        """Take up the weights received, blending both decoders with the site's own."""
        if self.fusion:
            site.load(whose_prompts(site))
        self.receive_blended(site, self.mixing if self.learned_aggregation else None)

    def attention_maps(self, site: Site, images: Tensor) -> Mapping[str, Tensor]:
        """Where the prompts add most."""
        return cast(PromptedSegmenter, site.net).context_maps(images)

    def diagnose(self, site: Site, batch: Batch) -> dict[str, float]:
        """W, and what another site's prompts would change."""
        notes = super().diagnose(site, batch)
        if self.fusion:
            notes |= swapped(site, batch, whose_prompts(site), whose_prompts(site, 1))
        return notes


def whose_prompts(site: Site, other: int = 0) -> dict[str, Tensor]:
    """Which of the prompts are the site's: its own place, and how sparse its labels are.

    Those of the `other`-th site after it, where that is not 0.
    """
    info = site.sites[(site.info.index + other) % len(site.sites)] if other else site.info
    kind = SPARSITIES.index(sparsity_of(info.kind))
    return {
        PLACE: torch.eye(len(site.sites))[info.index],
        SPARSITY: torch.eye(len(SPARSITIES))[kind],
    }


def keep_own_rows(server: Server, before: Weights, replies: Mapping[str, Message]) -> None:
    """Undo the average of the sites' prompts: a row is what its site sent, or stays as it was."""
    if ROWS not in server.weights:
        return
    for info in server.sites:
        newest = replies[info.name].weights if info.name in replies else before
        server.weights[ROWS][info.index].copy_(newest[ROWS][info.index])
