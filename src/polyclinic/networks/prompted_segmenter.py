"""A network that is told its context by prompts, with a gate at its head and a second decoder."""

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from polyclinic.networks.attention import Attention, ChannelWeights, DualAttention
from polyclinic.networks.blocks import Norm
from polyclinic.networks.contract import Extended, Segmenter
from polyclinic.networks.dropout import Dropout
from polyclinic.networks.two_branches import Branch, second_branch
from polyclinic.networks.unet import leaky
from polyclinic.networks.widening import smallest_maps, widen
from polyclinic.weak.kind import SPARSITIES


class Prompts(nn.Module):
    """A universal prompt, one for the images of each site, and three constant ones for labels.

    Which of them are the site's own say two buffers, which are private to it.
    """

    place: Tensor
    sparsity: Tensor

    def __init__(
        self, sites: int, size: int, *, universal: bool, distribution: bool, sparsity: bool
    ) -> None:
        super().__init__()
        self.size = size
        self.universal = nn.Parameter(torch.rand(1, size, size)) if universal else None
        self.sites = nn.Parameter(torch.rand(sites, size, size)) if distribution else None
        self.knows_sparsity = sparsity
        self.channels = int(universal) + int(distribution) + len(SPARSITIES) * int(sparsity)
        self.register_buffer("place", torch.zeros(sites))
        self.register_buffer("sparsity", torch.zeros(len(SPARSITIES)))

    def own(self, *, apart: bool) -> Tensor:
        """Give the site's prompts as one vector, or how they stand `apart` from the mean of all."""
        found = [] if apart or self.universal is None else [self.universal.flatten()]
        if self.sites is not None:
            rows = self.sites - self.sites.mean(0).detach() if apart else self.sites
            found.append(torch.einsum("n,nhw->hw", self.place, rows).flatten())
        if self.knows_sparsity:
            found.append(self.sparsity - 1 / len(SPARSITIES) if apart else self.sparsity)
        return torch.cat(found) if found else self.place[:0]

    def forward(self, maps: Tensor) -> Tensor:
        """Give the site's prompts (batch × prompts × height × width) in the size of the maps."""
        batch, _, *size = maps.shape
        found: list[Tensor] = [] if self.universal is None else [self.universal]
        if self.sites is not None:
            found.append(torch.einsum("n,nhw->hw", self.place, self.sites)[None])
        learned = [_resampled(each[None], size) for each in found]
        if self.knows_sparsity:
            learned.append(self.sparsity[None, :, None, None].expand(1, -1, *size))
        prompts = torch.cat(learned, 1) if learned else maps.new_zeros(1, 0, *size)
        return prompts.expand(batch, -1, -1, -1)


def _resampled(prompt: Tensor, size: list[int]) -> Tensor:
    if list(prompt.shape[2:]) == size:
        return prompt
    # Smoothed before it is made smaller, so that every value counts and learns.
    return functional.interpolate(prompt, size, mode="bilinear", antialias=True)


Gate = Literal["residual", "product", "none"]
PromptForm = Literal["joined", "modulating", "differing"]


class Fusion(nn.Module):
    """The deepest map and the prompts in two convolutions, and attention over the result."""

    def __init__(
        self, channels: int, prompts: int, attention: Attention, weights: ChannelWeights
    ) -> None:
        super().__init__()
        inner, self.channels = max(1, channels // 2), max(1, channels // 4)
        self.mixing = nn.Sequential(
            nn.Conv2d(channels + prompts, inner, kernel_size=3, padding=1),
            Norm(inner),
            leaky(),
            Dropout(0.5),
            nn.Conv2d(inner, self.channels, kernel_size=3, padding=1),
            Norm(self.channels),
            leaky(),
        )
        self.attention = DualAttention(self.channels, attention, weights)

    def forward(self, deepest: Tensor, prompts: Tensor) -> Tensor:
        """Give the map of the context, in the size of the deepest map."""
        return self.attention(self.mixing(torch.cat((deepest, prompts), 1)))


class Modulation(nn.Module):
    """A factor and an offset for each channel before the head, from the prompts; 1 and 0 at first.

    Behind the last norm layer: those before it take away whatever all images of a batch have in
    common, and all images of a site have its prompts in common.
    """

    def __init__(self, values: int, channels: int) -> None:
        super().__init__()
        self.layer = nn.Linear(values, 2 * channels)
        nn.init.zeros_(self.layer.weight)
        nn.init.zeros_(self.layer.bias)

    def forward(self, maps: Tensor, prompts: Tensor) -> Tensor:
        """Give the maps, each channel scaled and shifted."""
        scale, shift = self.layer(prompts)[None, :, None, None].chunk(2, dim=1)
        return maps + maps * scale + shift


class ContextGate(nn.Module):
    """One factor for each channel before the head, from the deepest map with its context.

    "residual" factors are 1 + what the layers say and start at 1, so that a decoder also works
    without them; "product" factors are what the layers say, from the start.
    """

    def __init__(self, inputs: int, inner: int, outputs: int, kind: Gate) -> None:
        super().__init__()
        self.kind = kind
        narrow = max(1, inner // 2)
        self.layers = nn.Sequential(
            nn.Conv2d(inputs, inner, kernel_size=1),
            Norm(inner),
            leaky(),
            nn.Conv2d(inner, narrow, kernel_size=1),
            Norm(narrow),
            leaky(),
        )
        self.last = nn.Linear(narrow, outputs)
        if kind == "residual":
            nn.init.zeros_(self.last.weight)
            nn.init.zeros_(self.last.bias)

    def forward(self, maps: Tensor, context: Tensor) -> Tensor:
        """Give the maps before the head, each channel times its factor."""
        factors = self.last(self.layers(context).mean((2, 3)))[:, :, None, None]
        return maps + maps * factors if self.kind == "residual" else maps * factors


class PromptedSegmenter(Extended):
    """Another network's encoder, decoder and head, with what is wanted of the rest.

    Without prompts (`prompts` is None) there is neither fusion nor gate, and the decoder is the
    network's own. The second branch starts from weights of its own, or as a copy of decoder and
    head.
    """

    def __init__(
        self,
        net: Segmenter,
        *,
        prompts: Prompts | None,
        attention: Attention,
        channel_weights: ChannelWeights,
        gate: Gate,
        form: PromptForm = "joined",
        second: Literal["own", "copy"] | None,
    ) -> None:
        super().__init__(net)
        self.prompts = prompts
        self.fusion: Fusion | None = None
        self.gate: ContextGate | None = None
        self.modulation: Modulation | None = None
        self.second: Branch | None = None
        self.apart = form == "differing"
        features, maps = smallest_maps(net)
        deepest, last = features[-1].shape[1], maps[-1].shape[1]
        if prompts is not None:
            self.fusion = Fusion(deepest, prompts.channels, attention, channel_weights)
            widen(net, self.fusion.channels)
            if gate != "none":
                inputs = deepest + self.fusion.channels
                self.gate = ContextGate(inputs, max(1, deepest // 2), last, gate)
            if form != "joined" and (values := len(prompts.own(apart=self.apart))):
                self.modulation = Modulation(values, last)
        if second:
            self.second = second_branch(self, alike=second == "copy")

    def forward(self, images: Tensor) -> Tensor:
        """Give the logits (batch × classes × height × width) of the main decoder."""
        return self._main(self.features(images))

    def embed(self, images: Tensor) -> Tensor:
        """Give the main decoder's last map, behind its gate."""
        return self._last(self.features(images))

    def both(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Give the logits of the main and of the second decoder."""
        features = self.features(images)
        assert self.second is not None, "a second decoder was asked for and is not there"
        return self._main(features), self.second(features)

    def context_maps(self, images: Tensor) -> dict[str, Tensor]:
        """How strong the context is that the prompts give the deepest map, at every place."""
        if self.prompts is None or self.fusion is None:
            return {}
        deepest = self.encoder(images)[-1]
        return {"context of prompts": self.fusion(deepest, self.prompts(deepest)).norm(dim=1)}

    def features(self, images: Tensor) -> list[Tensor]:
        """Give the encoder's maps, the deepest with its context."""
        features = super().features(images)
        if self.prompts is None or self.fusion is None:
            return features
        deepest = features[-1]
        context = self.fusion(deepest, self.prompts(deepest))
        return [*features[:-1], torch.cat((deepest, context), 1)]

    def _main(self, features: list[Tensor]) -> Tensor:
        return self.head(self._last(features))

    def _last(self, features: list[Tensor]) -> Tensor:
        last = self.decoder(features)[-1]
        if self.gate is not None:
            last = self.gate(last, features[-1])
        if self.modulation is not None and self.prompts is not None:
            last = self.modulation(last, self.prompts.own(apart=self.apart))
        return last
