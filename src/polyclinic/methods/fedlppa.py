"""FedLPPA: prompts, a second decoder per site (Lin et al., IEEE TMI 2024, arXiv 2402.17502)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, cast

import torch
from pydantic import Field
from torch import Tensor

from polyclinic.data.cases import Batch
from polyclinic.federation.message import Message
from polyclinic.federation.server import Server
from polyclinic.federation.site import Site
from polyclinic.federation.weights import Weights
from polyclinic.losses import Window, gated_crf, pseudo_dice
from polyclinic.methods.learned_mixing import BlendingMethod, Mixing, receive_mixed
from polyclinic.methods.second_decoder import (
    SECOND,
    Strategy,
    make_second,
    prompt_affinity,
    start_second,
    with_second,
)
from polyclinic.networks.attention import Attention, ChannelWeights
from polyclinic.networks.contract import Segmenter
from polyclinic.networks.parts import Names, everything, parameters, under
from polyclinic.networks.prompted_segmenter import Gate, PromptedSegmenter, Prompts
from polyclinic.runs import SiteInfo
from polyclinic.weak import sparsity_of
from polyclinic.weak.kind import SPARSITIES

Weight = Annotated[float, Field(ge=0)]
UNIVERSAL, ROWS = "prompts.universal", "prompts.sites"
PLACE, SPARSITY = "prompts.place", "prompts.sparsity"


@dataclass(frozen=True)
class FedLPPA(BlendingMethod):
    """FedAvg with prompts, and with pseudo labels from a second decoder made for each site.

    Pseudo labels and gated CRF stand in for labels that are not there: a site with full masks
    trains without them.
    """

    fusion: bool = True
    """Fuse prompts into the deepest map (TDF)."""
    universal_prompt: bool = True
    """The prompt common to all sites (UKP)."""
    distribution_prompt: bool = True
    """The prompt of each site's images (DDP)."""
    sparsity_prompt: bool = True
    """The prompt that says how sparse the labels are (ASP)."""
    prompt_size: Annotated[int, Field(ge=1)] = 16
    """Side of a prompt in pixels."""
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
    pseudo_labels: Weight = 0.5
    """Weight of the Dice loss on pseudo labels."""
    least_share: Annotated[float, Field(ge=0, le=1)] = 0.7
    """Smallest share of the main decoder in a pseudo label."""
    crf: Weight = 0.0
    """Weight of a gated CRF on the main decoder; 0 is without it."""
    crf_window: Window = field(default_factory=Window)
    """How far the gated CRF looks."""

    def adapt(self, net: Segmenter, sites: tuple[SiteInfo, ...]) -> Segmenter:
        """The network with prompts, a gate at its head and a second decoder."""
        prompts = Prompts(
            len(sites),
            self.prompt_size,
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
            second=self.second_decoder != "none",
        )

    def shares(self, net: Segmenter) -> Names:
        """All but the second decoder and what says which site this is."""
        return everything(net) - self.server_made(net) - {PLACE, SPARSITY}

    def server_made(self, net: Segmenter) -> Names:
        """The second decoder."""
        return under(net, SECOND) if self.second_decoder != "none" else frozenset()

    def blended(self, net: Segmenter) -> Names:
        """Both decoders with their heads, and the gate of the main one."""
        wanted = {"decoder", "head", "gate", SECOND}
        return frozenset(name for name in parameters(net) if name.partition(".")[0] in wanted)

    # The server's half.

    def start(self, server: Server) -> None:
        """Every site's second decoder begins as the common first one."""
        if self.second_decoder != "none":
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
            make_second(server, replies, self.second_decoder, affinity)

    def needs_mean(self) -> str:
        """Each site's second decoder is made from all replies."""
        return "every site's second decoder is a mixture of all sites' decoders"

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
        loss = self.loss if self.mixing_loss == "full" else self.supervised
        mixing = self.mixing if self.learned_aggregation else None
        receive_mixed(site, self.blended(site.net), loss, mixing)

    def loss(self, site: Site, batch: Batch) -> Tensor:
        """Labels, and what stands in for them: pseudo labels of both decoders, gated CRF."""
        branches = self._branches(site, batch)
        loss = self._labelled(site, batch, branches)
        if site.info.kind == "mask":
            return loss
        first, *second = (logits.softmax(1) for logits in branches)
        if self.pseudo_labels and second:
            loss = loss + self.pseudo_labels * pseudo_dice(
                first, second[0], low=self.least_share, mask=batch.view
            )
        if self.crf:
            energy = gated_crf(first, batch.images, **vars(self.crf_window), mask=batch.view)
            loss = loss + self.crf * energy
        return loss

    def supervised(self, site: Site, batch: Batch) -> Tensor:
        """The labels alone, for both decoders."""
        return self._labelled(site, batch, self._branches(site, batch))

    def _branches(self, site: Site, batch: Batch) -> tuple[Tensor, ...]:
        net = cast(PromptedSegmenter, site.net)
        return (net(batch.images),) if net.second is None else net.both(batch.images)

    def _labelled(self, site: Site, batch: Batch, branches: tuple[Tensor, ...]) -> Tensor:
        losses = [site.supervised(each, batch.labels) for each in branches]
        return torch.stack(losses).mean() if len(losses) > 1 else losses[0]


def whose_prompts(site: Site) -> dict[str, Tensor]:
    """Which of the prompts are the site's: its own place, and how sparse its labels are."""
    kind = SPARSITIES.index(sparsity_of(site.info.kind))
    return {
        PLACE: torch.eye(len(site.sites))[site.info.index],
        SPARSITY: torch.eye(len(SPARSITIES))[kind],
    }


def keep_own_rows(server: Server, before: Weights, replies: Mapping[str, Message]) -> None:
    """Undo the average of the sites' prompts: a row is what its site sent, or stays as it was."""
    if ROWS not in server.weights:
        return
    for info in server.sites:
        newest = replies[info.name].weights if info.name in replies else before
        server.weights[ROWS][info.index].copy_(newest[ROWS][info.index])
