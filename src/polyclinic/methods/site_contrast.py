"""Gates that know whose images they see: a site's code, and the contrast between sites' gates."""

from collections.abc import Mapping
from typing import cast

import torch
from torch import Tensor

from polyclinic.data.cases import Batch
from polyclinic.federation.diagnosing import changed_pixels, share_of_objects
from polyclinic.federation.site import Site
from polyclinic.networks.contract import likeliest
from polyclinic.networks.gated_segmenter import GatedSegmenter

CODE = "gate.code"  # private: it says which site this is


def code(site: Site, other: int = 0) -> dict[str, Tensor]:
    """The one-hot code of a site, or of the `other`-th after it, as the network calls it."""
    return {CODE: torch.eye(len(site.sites))[(site.info.index + other) % len(site.sites)]}


@torch.no_grad()
def swapped(
    site: Site, batch: Batch, own: Mapping[str, Tensor], other: Mapping[str, Tensor]
) -> dict[str, float]:
    """The pixels that another site's context changes, over those of the objects."""
    if len(site.sites) == 1:
        return {}
    before = site.net(batch.images)
    site.load(other)
    after = site.net(batch.images)
    site.load(own)
    objects = share_of_objects(batch.labels, likeliest(before))
    return {"context swapped": changed_pixels(before, after) / objects}


def gate_notes(site: Site, batch: Batch) -> dict[str, float]:
    """What became of a site's gates, and what another site's code would change; {} without any."""
    gates = cast(GatedSegmenter, site.net).look(batch.images).gates
    if gates is None:
        return {}
    return {
        "gates saturated": float(((gates < 0.05) | (gates > 0.95)).float().mean()),
        "gates over images": float(gates.float().std(0, correction=0).mean()),
        **swapped(site, batch, code(site), code(site, 1)),
    }


def site_contrast(own: Tensor, others: Tensor, distance: str, margin: float = 1.0) -> Tensor:
    """Minus the mean distance of a site's gates (B×C) to the others' (S×B×C); 0 without others.

    A distance beyond the margin counts as the margin, and so pushes no further; gates are never
    further apart than 1.
    """
    if not len(others):
        return own.new_zeros(())
    apart = own - others
    distances = (apart.square() if distance == "squared" else apart.abs()).mean((1, 2))
    return -distances.clamp(max=margin).mean()
