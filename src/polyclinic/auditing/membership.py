"""Membership inference against a run's final models: can their losses tell who was in training?

Loss-based attacks: Yeom et al., CSF 2018 (arXiv 1709.01604). Calibrated by models that did not see
the case: Watson et al., ICLR 2022 (arXiv 2111.08440). Judged at low rates of false positives:
Carlini et al., S&P 2022 (arXiv 2112.03570).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polyclinic.data.cases import Cases, SiteData, with_masks
from polyclinic.engine.states import read_state
from polyclinic.evaluation.membership import LEAST, Evidence, Success, success
from polyclinic.exporting.choosing import Origin
from polyclinic.exporting.trained import cases_of, in_use
from polyclinic.federation.scoring import predictions
from polyclinic.losses import Marginal, segmentation_loss
from polyclinic.runs import RunError

Numbers = NDArray[np.float64]
TINY = 1e-7  # the smallest probability, so that no single pixel decides
ALL = "all sites"
ATTACKS = {
    "loss": "the model's loss of the case alone",
    "difficulty": "the loss, less what the length of the mask's border explains",
    "reference": "the loss, less the mean loss of the other sites' models",
}
FEW = 20  # patients on either side below which intervals are too narrow to lean on


@dataclass(frozen=True)
class Finding:
    """What one attack achieves against one site's model, or against all of them."""

    site: str
    attack: str
    members: int
    others: int
    patients: int  # on the side that has fewer
    success: Success


@dataclass(frozen=True)
class Audit:
    """All findings of one run, and what is to be said about them."""

    origins: tuple[Origin, ...]
    findings: tuple[Finding, ...]
    references: str
    remarks: tuple[str, ...]


@dataclass(frozen=True)
class Sides:
    """A site's cases with masks: those trained on, and those of validation and test."""

    data: SiteData
    members: Cases
    others: tuple[Cases, ...]

    @property
    def parts(self) -> tuple[Cases, ...]:
        """All of them, members first."""
        return (self.members, *self.others)

    @property
    def patients(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The patient of each member and of each other case."""
        return self.members.patients, tuple(p for each in self.others for p in each.patients)


def audit(origins: Sequence[Origin], references: Sequence[Origin] = ()) -> Audit:
    """Attack the models of one run with the cases that lie here.

    Reference models are the other sites' of `references`, else those of the run itself where its
    sites have models of their own.
    """
    data = {each.name: each for each in cases_of(origins[0])}
    sides = {o.owner: sides_of(data[o.owner]) for o in origins if o.owner in data}
    lacking = [name for name, each in sides.items() if not (len(each.members) and each.others)]
    audited = [o for o in origins if o.owner in sides and o.owner not in lacking]
    if not audited:
        raise RunError(
            f"{origins[0].run.folder.path}: no site has both training cases and validation or "
            "test cases with masks here, so nothing can be told apart"
        )
    given = tuple(references) or (() if _alike(origins) else tuple(origins))
    evidence = _evidence(audited, sides, given)
    findings = [f for attack in evidence for f in _findings(attack, evidence[attack], sides)]
    titles = dict.fromkeys(f"{o.run.choice.title}, seed {o.run.seed}" for o in references)
    named = "; ".join(titles) or ("the run itself" if given else "none")
    return Audit(tuple(audited), tuple(findings), named, tuple(_remarks(findings, lacking, given)))


def sides_of(data: SiteData) -> Sides:
    """A site's cases with masks, apart from each other."""
    others = [with_masks(each) for each in (data.val, data.test)]
    return Sides(data, with_masks(data.train), tuple(each for each in others if len(each)))


def losses(origin: Origin, sides: Sides) -> Numbers:
    """The loss of each case, members first: cross entropy and soft Dice against its mask."""
    groups = sides.data.mask_groups
    loss = Marginal(segmentation_loss, (groups,)) if groups else segmentation_loss
    found: list[float] = []
    with in_use(origin) as (method, site):
        site = replace(site, data=sides.data)
        for cases in sides.parts:
            predicted = torch.cat([each.cpu() for each in predictions(method, site, cases)])
            each_of = zip(predicted.clamp(min=TINY).log().split(1), cases.masks, strict=True)
            found += [float(loss(maps, mask[None])) for maps, mask in each_of]
    return np.array(found)


def difficulty(sides: Sides) -> Numbers:
    """The share of each case's pixels that lie at a border of its mask, members first.

    Where borders are, every model errs, whether it has seen the case or not.
    """
    return np.concatenate([_borders(cases.masks) for cases in sides.parts])


def unexplained(values: Numbers, by: Numbers) -> Numbers:
    """What a straight line through all cases does not explain of their values.

    Members and others are fitted together: a model that saw neither gives no hint this way.
    """
    if np.ptp(by) == 0:
        return values - values.mean()
    return values - np.polynomial.Polynomial.fit(by, values, 1)(by)


def _alike(origins: Sequence[Origin]) -> bool:
    """Whether all sites have one model, so that none of them is a reference for another."""
    first, *rest = (read_state(o.run.folder.weights_path(o.owner))[0].weights for o in origins)
    return all(torch.equal(each[name], first[name]) for each in rest for name in first)


def _evidence(
    audited: Sequence[Origin], sides: Mapping[str, Sides], references: Sequence[Origin]
) -> dict[str, dict[str, Evidence]]:
    """By attack and site, what the attack says of the cases."""
    told: dict[str, dict[str, Evidence]] = {attack: {} for attack in ATTACKS}
    known: dict[tuple[str, str, str], Numbers] = {}

    def loss(origin: Origin, site: str) -> Numbers:
        key = (str(origin.run.folder.path), origin.owner, site)
        if key not in known:
            known[key] = losses(origin, sides[site])
        return known[key]

    for origin in audited:
        site = origin.owner
        own = loss(origin, site)
        told["loss"][site] = _split(-own, sides[site])
        told["difficulty"][site] = _split(-unexplained(own, difficulty(sides[site])), sides[site])
        others = [loss(each, site) for each in references if each.owner != site]
        if others:
            told["reference"][site] = _split(np.mean(others, axis=0) - own, sides[site])
    return {attack: found for attack, found in told.items() if found}


def _split(values: Numbers, sides: Sides) -> Evidence:
    count = len(sides.members)
    ours, theirs = sides.patients
    return Evidence(values[:count].tolist(), ours, values[count:].tolist(), theirs)


def _findings(
    attack: str, evidence: Mapping[str, Evidence], sides: Mapping[str, Sides]
) -> Iterable[Finding]:
    groups = {site: [site] for site in evidence}
    if len(evidence) > 1:
        groups[ALL] = list(evidence)
    for title, names in groups.items():
        patients = [tuple(len(set(side)) for side in sides[name].patients) for name in names]
        yield Finding(
            title,
            attack,
            sum(len(evidence[name].members) for name in names),
            sum(len(evidence[name].others) for name in names),
            min(sum(each[0] for each in patients), sum(each[1] for each in patients)),
            success([evidence[name] for name in names]),
        )


def _remarks(
    findings: Sequence[Finding], lacking: Sequence[str], references: Sequence[Origin]
) -> Iterable[str]:
    yield (
        "This is no upper bound: it shows what these attacks find. A stronger one, such as with "
        "many shadow models, may find more, and 0.5 does not prove that nothing can be found."
    )
    yield (
        "The attacker has the case, its mask and the final model. What messages of single rounds "
        "give away is not tried."
    )
    yield "Where the training cases differ from the others in themselves, attacks succeed by that."
    if not references:
        yield "There are no models for reference; --reference takes those of a run with local."
    elif any(origin.run.choice.name != "local" for origin in references):
        yield (
            "The reference models had a share of the cases by way of the federation, which "
            "weakens that attack; a run of the method local, with --reference, does not."
        )
    if any(each.patients < FEW for each in findings):
        yield (
            f"With fewer than {FEW} patients on a side intervals are too narrow, and with fewer "
            f"than {LEAST}, or with a site that has one, there are none."
        )
    if any(each.others < 100 for each in findings):
        yield "With fewer than 100 other cases, 1 % of false positives means none at all."
    for name in lacking:
        yield f"{name} was left out: its training cases, or all others, have no masks here."


def _borders(masks: Tensor) -> Numbers:
    count = partial(torch.sum, dim=(1, 2), dtype=torch.float64)
    down = count(masks[:, 1:] != masks[:, :-1])
    right = count(masks[:, :, 1:] != masks[:, :, :-1])
    return np.asarray(((down + right) / masks[0].numel()).cpu().numpy(), np.float64)
