"""FedDG: images in other sites' style (Liu et al., CVPR 2021, arXiv 2103.06030).

The exchange of low frequencies and the episodic step of ELCFS; its contrast of boundaries, which
needs full masks, is left out.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from polyclinic.data.augment import normalised
from polyclinic.data.cases import Batch
from polyclinic.federation.message import Message
from polyclinic.federation.method import SPECTRUM, Method, Stage, plain_loss, silent
from polyclinic.federation.server import Server
from polyclinic.federation.site import Site
from polyclinic.methods.fast_weights import loss_at, stepped
from polyclinic.runs import SiteInfo
from polyclinic.seeds import torch_generator


@dataclass(frozen=True)
class FedDG(Method):
    """FedAvg that also learns from its images with low frequencies as strong as other sites' have.

    Before the first round each site shows the others how strong the lowest frequencies (`window` of
    a side, at least one) of so many training images as `spectra` are. The loss is the plain one
    and `weight` times that of the changed images after a step at `inner_rate` on the plain ones.
    """

    spectra: Annotated[int, Field(ge=0)] = 16
    """Training images of a site whose low frequencies the others get; 0 is FedAvg."""
    window: Annotated[float, Field(gt=0, le=0.25)] = 0.01
    """Low frequencies on each side of 0 over the image's side, at least one."""
    weight: Annotated[float, Field(ge=0)] = 1.0
    """Weight of the loss of restyled images; 0 is FedAvg."""
    inner_rate: Annotated[float, Field(ge=0)] = 0.01
    """Learning rate of the step before it; 0 judges the weights as they are."""

    title: ClassVar[str] = "FedDG"
    one_branch: ClassVar[bool] = True
    shared_memory: ClassVar[frozenset[str]] = frozenset({SPECTRUM})  # of the other sites
    mean_only: ClassVar[str] = ""

    def before(self) -> tuple[Stage, ...]:
        """Spectra are shown, then handed to the other sites."""
        if not self.spectra:
            return ()
        return (
            Stage("show spectra", silent, self.show, keep, from_images=True),
            Stage("hand on spectra", hand_on, take_up, forget),
        )

    def show(self, site: Site) -> Message:
        """The spectra of a few of the site's training images, drawn by lot."""
        rng = torch_generator(site.seed, site.info.name, "spectra")
        index = torch.randperm(len(site.data.train), generator=rng)[: self.spectra]
        images = normalised(site.data.train, index, site.device).images
        found = centre(torch.fft.fft2(images), self.window).abs()
        return Message(extras={f"{SPECTRUM}/{n}": each.clone() for n, each in enumerate(found)})

    def train(self, site: Site) -> None:
        """Learn from images as they are and as they would be elsewhere."""
        known = [site.memory[key] for key in sorted(site.memory) if key.startswith(f"{SPECTRUM}/")]
        if not known or not self.weight:
            site.fit(self.loss)
            return
        strengths = torch.stack(known).to(site.device)

        def episodic(site: Site, batch: Batch) -> Tensor:
            plain = plain_loss(site, batch)
            fast = stepped(site, plain, self.inner_rate)
            chosen = strengths[torch.randint(len(strengths), (len(batch.images),))]
            share = torch.rand(len(batch.images), 1, 1, 1).to(site.device)
            changed = restyled(batch.images, chosen, share, self.window)
            return plain + self.weight * loss_at(site, fast, replace(batch, images=changed))

        site.fit(episodic)


def centre(spectrum: Tensor, window: float) -> Tensor:
    """The lowest frequencies of both signs (…×H×W to …×h×w); a view of the shifted spectrum."""
    shifted = torch.fft.fftshift(spectrum, dim=(-2, -1))
    high, wide = spectrum.shape[-2:]
    rows, columns = (max(1, round(window * side)) for side in (high, wide))
    return shifted[
        ...,
        high // 2 - rows : high // 2 + rows + 1,
        wide // 2 - columns : wide // 2 + columns + 1,
    ]


def restyled(images: Tensor, strengths: Tensor, share: Tensor, window: float) -> Tensor:
    """The images (B×C×H×W), their lowest frequencies by this share as strong as `strengths`.

    Where everything lies, the phase, stays.
    """
    spectrum = torch.fft.fft2(images.float())
    own = centre(spectrum, window)
    change = torch.polar(torch.lerp(own.abs(), strengths, share), own.angle()) - own
    rows, columns = change.shape[-2] // 2, change.shape[-1] // 2
    wide = torch.zeros_like(spectrum)
    wide[..., : 2 * rows + 1, : 2 * columns + 1] = change
    return torch.fft.ifft2(spectrum + wide.roll((-rows, -columns), dims=(-2, -1))).real


def keep(server: Server, replies: Mapping[str, Message]) -> None:
    """Remember every site's spectra until they are handed on."""
    for site, reply in replies.items():
        shown = {name.partition("/")[2]: each for name, each in reply.extras.items()}
        server.memory.update({f"{SPECTRUM}/{site}/{n}": each.clone() for n, each in shown.items()})


def hand_on(server: Server, info: SiteInfo) -> Message:
    """To a site, the spectra of all others."""
    return Message(server.weights, extras=server.others(SPECTRUM, info))


def take_up(site: Site) -> Message:
    """Remember the others' spectra."""
    site.memory.update({key: each.to(site.device) for key, each in site.message.extras.items()})
    return Message()


def forget(server: Server, replies: Mapping[str, Message]) -> None:  # noqa: ARG001
    """What was made from images stays with the server no longer than needed."""
    server.forget(SPECTRUM)
