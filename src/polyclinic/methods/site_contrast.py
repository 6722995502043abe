"""Gates that know whose images they see: a site's code, and the contrast between sites' gates."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import l1_loss, mse_loss

from polyclinic.federation.site import Site

CODE = "gate.code"  # private: it says which site this is


def own_code(site: Site) -> dict[str, Tensor]:
    """The site's one-hot code, by the name that the network has for it."""
    return {CODE: torch.eye(len(site.sites))[site.info.index]}


def site_contrast(own: Tensor, others: Tensor, distance: str) -> Tensor:
    """Minus the mean distance of a site's gates (B×C) to the others' (S×B×C); 0 without others."""
    if not len(others):
        return own.new_zeros(())
    how = mse_loss if distance == "squared" else l1_loss
    return -how(own.expand_as(others), others.detach())
