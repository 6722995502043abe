"""What every segmentation network looks like from outside."""

from typing import ClassVar, cast

import torch
from torch import Tensor, nn

from polyclinic.config.mistakes import multiples_near
from polyclinic.networks.parts import Names, norms, under


class ImageError(ValueError):
    """Images that a network cannot take, with every error."""


class Segmenter(nn.Module):
    """A network of three modules: encoder, decoder and head.

    The encoder turns images into maps, finest first; the decoder turns those into its own
    maps, coarsest first; the head turns the last of them into logits of the images' size.
    """

    name: ClassVar[str] = "of your own"
    divisor: int = 1  # of the height and width of all images that it can take
    side: int = 0  # of the images of the study, where that is known

    def __init__(
        self,
        *,
        channels: int,
        classes: int,
        encoder: nn.Module,
        decoder: nn.Module,
        head: nn.Module,
    ) -> None:
        super().__init__()
        self.channels = channels
        self.classes = classes
        self.encoder = encoder
        self.decoder = decoder
        self.head = head

    def forward(self, images: Tensor) -> Tensor:
        """Give logits (batch × classes × height × width) for images of any divisible size."""
        return cast(Tensor, self.head(self.embed(images)))

    def embed(self, images: Tensor) -> Tensor:
        """Give the map that the head turns into logits: the decoder's last."""
        return cast(Tensor, self.decoder(self.features(images))[-1])

    def features(self, images: Tensor) -> list[Tensor]:
        """Give the encoder's maps, finest first."""
        self.check(images)
        # `to` also gives one-channel images the strides that keep all later maps channels-last.
        return cast(list[Tensor], self.encoder(images.to(memory_format=torch.channels_last)))

    def check(self, images: Tensor) -> None:
        """Refuse images with other dimensions or channels, or of a size that cannot be halved."""
        errors = self._errors(images.shape)
        if errors:
            raise ImageError(f"network '{self.name}' cannot take these images: {'; '.join(errors)}")

    def parts(self) -> dict[str, Names]:
        """Publish the named parts: each direct sub-module, its own parts, and the norm layers."""
        parts = {"norms": norms(self)}
        for path, module in self.named_children():
            parts[path] = under(self, path)
            inner: dict[str, Names] = getattr(module, "parts", dict)()
            for name, names in inner.items():
                parts[name] = frozenset(f"{path}.{each}" for each in names)
        return parts

    def _errors(self, shape: torch.Size) -> list[str]:
        if len(shape) != 4:
            return [f"expected batch × channels × height × width, got {len(shape)} dimensions"]
        _, channels, *sides = shape
        errors = []
        if channels != self.channels:
            errors.append(f"they have {channels} channel(s), it takes {self.channels}")
        for side, size in zip(("height", "width"), sides, strict=True):
            if size % self.divisor or not size:
                nearest = multiples_near(size, self.divisor)
                errors.append(
                    f"{side} {size} is not divisible by {self.divisor}, nearest {nearest}"
                )
        return errors


class Extended(Segmenter):
    """Another network's encoder, decoder and head, to which something is added."""

    def __init__(self, net: Segmenter) -> None:
        super().__init__(
            channels=net.channels,
            classes=net.classes,
            encoder=net.encoder,
            decoder=net.decoder,
            head=net.head,
        )
        self.divisor = net.divisor
        self.name = net.name  # type: ignore[misc]  # errors should name what the study names


def likeliest(scores: Tensor) -> Tensor:
    """Give the class with the highest score at every pixel (bytes, N×H×W); ties go to the lower."""
    # On CPUs `argmax` takes tens of times as long where maps of classes lie one after the other.
    return scores.max(dim=1).indices.to(torch.uint8)
