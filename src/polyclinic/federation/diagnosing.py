"""What a site's model shows of the parts it is made of, without changing anything."""

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polyclinic.data.batches import in_order
from polyclinic.data.cases import Batch, Cases
from polyclinic.federation.site import Site
from polyclinic.federation.weights import group
from polyclinic.losses import mixed_label, tree_filtered
from polyclinic.masks import UNLABELLED
from polyclinic.networks.contract import likeliest
from polyclinic.networks.two_branches import SECOND, branches

if TYPE_CHECKING:
    from polyclinic.federation.method import Method

MOST = 12  # cases that are looked at
NOTED = "noted"  # a group of a site's memory: numbers of its last training, by their names


@torch.no_grad()
def diagnose(
    method: "Method", site: Site, cases: Cases, predicted: NDArray[np.uint8] | None = None
) -> dict[str, float]:
    """Numbers by the names of `DIAGNOSTICS`, of the model in use on the first of some cases.

    `predicted` are the classes that it gave all of them, where they are to be compared with masks.
    """
    notes = {} if predicted is None else _areas(predicted, cases.masks.numpy())
    notes |= {name: float(value) for name, value in group(site.memory, NOTED).items()}
    few = cases.select(range(min(MOST, len(cases))))
    seen = replace(few, labels=few.masks)
    site.net.eval()
    for batch in in_order(seen, batch=MOST, device=site.device):
        with method.in_use(site):
            notes |= _stand_ins(method, site, batch) | method.diagnose(site, batch)
    return {name: value for name, value in notes.items() if np.isfinite(value)}


def changed_pixels(one: Tensor, other: Tensor) -> float:
    """The share of pixels whose likeliest class differs between two scores (B×K×H×W)."""
    return float((likeliest(one) != likeliest(other)).float().mean())


def share_of_objects(masks: Tensor, predicted: Tensor) -> float:
    """The share of pixels (B×H×W) that are foreground; not a number where none is.

    Where nothing is known of any pixel, that of the predicted foreground.
    """
    known = masks if (masks != UNLABELLED).any() else predicted
    return float(((known > 0) & (known != UNLABELLED)).float().mean()) or float("nan")


def kept(label: Tensor, predicted: Tensor) -> float:
    """The foreground of a label over that predicted; not a number where nothing is predicted."""
    whole = (predicted > 0).sum()
    return float((label > 0).sum() / whole) if whole else float("nan")


def agreement(label: Tensor, masks: Tensor) -> dict[str, float]:
    """The share of a label's foreground and, where masks are known, its Dice with theirs."""
    known = masks != UNLABELLED
    found, true = (label > 0) & known, (masks > 0) & known
    both = (found.sum() + true.sum()).clamp(min=1)
    share = {"pseudo label share": float((label > 0).float().mean())}
    return share | (
        {"pseudo label Dice": float(2 * (found & true).sum() / both)} if known.any() else {}
    )


def _areas(predicted: NDArray[np.uint8], masks: NDArray[np.uint8]) -> dict[str, float]:
    known = masks != UNLABELLED
    true = ((masks > 0) & known).sum()
    return {"area": float(((predicted > 0) & known).sum() / true)} if true else {}


def _stand_ins(method: "Method", site: Site, batch: Batch) -> dict[str, float]:
    """What became of predictions where something stands in for labels."""
    weak, notes = site.training.weak, {}
    if site.info.kind == "mask":
        return {}
    if weak.tree:
        probabilities = method.predict(site, batch.images)
        filtered = tree_filtered(weak, probabilities, [batch.images])
        notes["tree keeps"] = kept(likeliest(filtered), likeliest(probabilities))
    if weak.pseudo_labels and getattr(site.net, SECOND, None) is not None:
        logits, other = branches(site.net, batch.images)
        assert other is not None, "the network has a second branch"
        first, second = logits.softmax(1), other.softmax(1)
        share = (weak.least_share + 1) / 2
        label = mixed_label(first, second, share, share)
        notes["decoders differ"] = changed_pixels(first, second)
        notes["pseudo label keeps"] = kept(label, likeliest(first))
        notes |= agreement(label, batch.labels)
    return notes
