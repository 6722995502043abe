"""A look inside a site's model for the report: embeddings of pixels, and maps of attention.

Both are patients' data, so only the local engine takes it, whose sites are all on one machine.
"""

from __future__ import annotations

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from polyclinic.data.batches import in_order
from polyclinic.data.cases import Cases
from polyclinic.data.pictures import draw_heat
from polyclinic.federation.method import Method
from polyclinic.federation.site import Site
from polyclinic.masks import UNLABELLED, Groups
from polyclinic.runs import Embedded, Moment, RunFolder, SiteInfo, replacing
from polyclinic.seeds import torch_generator

PIXELS = 240  # of each site, divided among its classes
CASES = 8  # that the pixels come from
DRAWN = 3  # cases whose attention is drawn
SIDE = 256  # pixels of such a picture


@torch.no_grad()
def embedded(moment: Moment, site: Site, cases: Cases) -> Embedded:
    """What the head sees at some pixels of the first cases; the same pixels at both moments."""
    site.net.eval()
    chosen = cases.select(range(min(CASES, len(cases))))
    rng = torch_generator(site.seed, site.info.name, "embeddings")
    places = _places(chosen.masks, site.data.mask_groups, rng)
    maps = [site.net.embed(batch.images) for batch in in_order(chosen, batch=1, device=site.device)]
    height, width = chosen.masks.shape[1:]
    values = [
        maps[case][0, :, y * maps[case].shape[2] // height, x * maps[case].shape[3] // width]
        for case, y, x in places.tolist()
    ]
    stacked = torch.stack(values) if values else torch.empty(0, 0)
    classes = chosen.masks[tuple(places.T)]
    return Embedded(moment, classes.long().numpy(), stacked.double().cpu().numpy())


@torch.no_grad()
def draw_attention(
    run: RunFolder, method: Method, site: Site, cases: Cases, whose: SiteInfo | None = None
) -> None:
    """Write where a site's network looks at the first cases, if the method says so.

    Cases are the site's own, or another's (`whose`), at which only the last map is drawn.
    """
    site.net.eval()
    chosen = cases.select(range(min(DRAWN, len(cases))))
    for index, batch in enumerate(in_order(chosen, batch=1, device=site.device)):
        found = method.attention_maps(site, batch.images)
        for name, maps in list(found.items())[-1 if whose else 0 :]:
            image, heat = chosen.images[index].cpu().numpy(), maps[0].float().cpu().numpy()
            picture = draw_heat(image, heat.astype(np.float64), SIDE)
            owner, title = (whose, f"{name}, {site.info.name}") if whose else (site.info, name)
            path = run.attention_path(owner.name, title, chosen.names[index])
            with replacing(path) as unfinished:
                Image.fromarray(picture).save(unfinished, format="PNG")


def _places(masks: Tensor, groups: Groups, rng: torch.Generator) -> Tensor:
    """Cases, rows and columns (P×3) of pixels, as many of each class as there can be.

    Where masks do not tell classes apart, nobody knows which a pixel has.
    """
    unknown = {UNLABELLED, *(first for first in groups if groups.count(first) > 1)}
    classes = [number for number in masks.unique().tolist() if number not in unknown]
    found = [torch.empty(0, 3, dtype=torch.long)]
    for number in classes:
        places = (masks == number).nonzero()
        found.append(places[torch.randperm(len(places), generator=rng)[: PIXELS // len(classes)]])
    return torch.cat(found)
