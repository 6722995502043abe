"""The maps of any network, and decoders that take more channels in the deepest of them."""

from typing import Any

import torch
from torch import Tensor, nn

from polyclinic.networks.contract import Segmenter

Maps = list[Tensor]


@torch.no_grad()
def smallest_maps(net: Segmenter) -> tuple[Maps, Maps]:
    """Give the encoder's and the decoder's maps of the smallest image, to read channels from."""
    training = net.training
    net.eval()
    image = torch.zeros(1, net.channels, net.divisor, net.divisor)
    features = net.encoder(image.to(next(net.parameters()).device))
    maps = net.decoder(features)
    net.train(training)
    return features, maps


def deepest_side(net: Segmenter) -> int:
    """Give the side of the deepest map of the study's images; of the smallest where unknown."""
    features, _ = smallest_maps(net)
    return features[-1].shape[-1] * max(1, net.side // net.divisor)


def widen(net: Segmenter, extra: int) -> None:
    """Let the decoder take so many more channels in the deepest map, behind those it takes now.

    The convolution that reads the deepest map is found by watching it; its weights stay, and the
    added ones are drawn as for a new convolution.
    """
    path, old = _reader_of_the_deepest(net)
    wider = _same_kind(old, old.in_channels + extra)
    inputs = 0 if isinstance(old, nn.ConvTranspose2d) else 1
    with torch.no_grad():
        wider.weight.narrow(inputs, 0, old.in_channels).copy_(old.weight)
        if old.bias is not None and wider.bias is not None:
            wider.bias.copy_(old.bias)
    parent, _, name = path.rpartition(".")
    setattr(net.decoder.get_submodule(parent), name, wider)


def _reader_of_the_deepest(net: Segmenter) -> tuple[str, nn.Conv2d | nn.ConvTranspose2d]:
    features, _ = smallest_maps(net)
    deepest = features[-1]
    found: dict[str, nn.Conv2d | nn.ConvTranspose2d] = {}
    watching = []
    for path, module in net.decoder.named_modules():
        if isinstance(module, nn.Conv2d | nn.ConvTranspose2d):

            def note(module: Any, inputs: tuple[Any, ...], path: str = path) -> None:
                if any(each is deepest for each in inputs):
                    found[path] = module

            watching.append(module.register_forward_pre_hook(note))
    training = net.training
    net.eval()
    with torch.no_grad():
        net.decoder(features)
    net.train(training)
    for each in watching:
        each.remove()
    if len(found) != 1:
        raise ValueError(
            f"the decoder of network '{net.name}' cannot be widened: {len(found)} of its "
            "convolutions read the deepest map, and it must be one"
        )
    return next(iter(found.items()))


def _same_kind(conv: nn.Conv2d | nn.ConvTranspose2d, inputs: int) -> nn.Conv2d | nn.ConvTranspose2d:
    settings: dict[str, Any] = {
        name: getattr(conv, name) for name in ("kernel_size", "stride", "padding", "dilation")
    }
    bias = conv.bias is not None
    return type(conv)(inputs, conv.out_channels, bias=bias, **settings).to(conv.weight.device)
