"""Rules that make one set of weights from replies of which some may be hostile.

They count sites alike: a hostile one could claim any number of images.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from polyclinic.config import FederationSettings
from polyclinic.federation.mixing import mix
from polyclinic.federation.weights import Weights

AT_ONCE = 2**20  # values of each reply that are sorted together
BEYOND = {"median": 1, "trimmed": 1, "krum": 3}  # sites needed beyond two for each hostile one


def combined(
    parts: Mapping[str, Weights], before: Weights, settings: FederationSettings
) -> Weights:
    """The replies as one by the study's rule; `before` are the weights that the sites received."""
    refuse_too_few(settings, len(parts))
    if settings.combine == "krum":
        return parts[krum(parts, settings.hostile)].copy()
    if settings.combine == "bounded":
        return bounded(parts, before, settings.bound)
    return trimmed(parts, settings.hostile if settings.combine == "trimmed" else None)


def refuse_too_few(settings: FederationSettings, sites: int) -> None:
    """Raise an error where the rule cannot withstand so many hostile ones of so many sites."""
    rule, hostile = settings.combine, settings.hostile
    needed = 2 * hostile + BEYOND.get(rule, 0)
    if rule in BEYOND and sites < needed:
        most = max(0, (sites - BEYOND[rule]) // 2)
        raise ValueError(
            f'federation.combine = "{rule}" with hostile = {hostile} needs {needed} sites in every '
            f"round, and there are {sites}; so many withstand at most hostile = {most}"
        )


def trimmed(parts: Mapping[str, Weights], cut: int | None) -> Weights:
    """The mean of each value without the `cut` largest and smallest; with None the median.

    (Yin et al., ICML 2018, arXiv 1803.01498)
    """
    flats = _flats(parts)
    cut = (len(flats) - 1) // 2 if cut is None else cut
    found = torch.empty_like(flats[0])
    for start in range(0, len(found), AT_ONCE):
        values = torch.stack([flat[start : start + AT_ONCE] for flat in flats]).sort(dim=0).values
        found[start : start + AT_ONCE] = values[cut : len(flats) - cut].double().mean(dim=0)
    return Weights(next(iter(parts.values())).layout, found)


def krum(parts: Mapping[str, Weights], hostile: int) -> str:
    """The site whose reply lies nearest to its nearest others, as many as can be trusted.

    (Blanchard et al., NeurIPS 2017, arXiv 1703.02757)
    """
    sites, flats = sorted(parts), _flats(parts)
    nearest = len(sites) - hostile - 2
    scores = []
    for flat in flats:
        distances = torch.stack([_length(flat, other) ** 2 for other in flats])
        scores.append(float(distances.sort().values[1 : nearest + 1].sum()))  # without its own
    return sites[scores.index(min(scores))]


def bounded(parts: Mapping[str, Weights], before: Weights, bound: float) -> Weights:
    """The mean of the replies' changes, none longer than `bound` times their median length.

    (Sun et al., 2019, arXiv 1911.07963; the median as in Nguyen et al., 2022, arXiv 2101.02281)
    """
    sites = sorted(parts)
    lengths = torch.stack([_length(flat, before.flat) for flat in _flats(parts)])
    most = bound * lengths.quantile(0.5)
    scales = (most / lengths.clamp(min=1e-300)).clamp(max=1).tolist()
    shares = [scale / len(sites) for scale in scales]
    rest = sum((1 - scale) / len(sites) for scale in scales)
    named = {site: parts[site] for site in sites}
    return mix({**named, "": before.pick(parts[sites[0]].names)}, [*shares, rest])


def _flats(parts: Mapping[str, Weights]) -> list[Tensor]:
    """The replies' values in the order of the sites' names, so that no other order matters."""
    return [parts[site].flat for site in sorted(parts)]


def _length(flat: Tensor, other: Tensor) -> Tensor:
    return (flat.double() - other.to(flat.device).double()).norm()
