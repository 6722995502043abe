"""A site's policy: what it agrees to, what may leave, and how much it is blurred before."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from polyclinic.config import Study
from polyclinic.config.node_file import Permissions, PrivacySettings
from polyclinic.data.errors import listed
from polyclinic.engine.flower.ledger import Ledger
from polyclinic.engine.flower.limits import budgets_of, fits, refused_settings, refused_training
from polyclinic.engine.flower.privacy import released
from polyclinic.engine.site_runner import SiteRunner
from polyclinic.federation.message import COUNTS, Message
from polyclinic.federation.method import DISCLOSED, SPECTRUM
from polyclinic.federation.weights import LARGEST, Weights
from polyclinic.networks.parts import statistics
from polyclinic.networks.pretrained import fingerprint

NOT_DISCLOSED = (
    "private weights are to be disclosed to the other sites, to which this site has not agreed "
    "(allow.disclose = true)"
)

FROM_IMAGES = (
    f"the extra {SPECTRUM!r} is made from images, and this site has not agreed to let it leave: "
    f'allow.extras must name it, as in extras = ["*", "{SPECTRUM}"]'
)


STATISTICS = (
    "running statistics of norm layers are to leave, which with [privacy] they do only where "
    'privacy.statistics = true; federation.statistics = "private" keeps them at the sites'
)


class PolicyRefusal(ValueError):
    """The site does not agree to what it is asked for; all reasons at once."""

    refuses = "policy"


@dataclass(frozen=True)
class Policy:
    """What stands between a site and everybody else."""

    allow: Permissions
    privacy: PrivacySettings | None
    ledger: Ledger

    @property
    def largest(self) -> int:
        """The most bytes of a message."""
        return int(self.allow.message_megabytes * 1e6)

    @property
    def noisy(self) -> bool:
        """Whether updates get noise, drawn anew for each answer."""
        return self.privacy is not None and self.privacy.noise > 0

    def weights(self, wanted: str) -> Path:
        """The file here with the fingerprint that a study starts from."""
        for file in self.allow.weights:
            if fingerprint(file) == wanted:
                return file
        raise PolicyRefusal(
            f"the study starts from weights with the fingerprint {wanted[:40]}, which none of the "
            "files in allow.weights has"
        )

    def check_run(self, study: Study, cases: int, runner: SiteRunner) -> None:
        """Refuse a run with this network that goes beyond what this site allows."""
        discloses = any(stage.discloses for stage in runner.assignment.stages)
        shown = any(stage.from_images for stage in runner.assignment.stages)
        needed = runner.assignment.method.predicts_with(runner.net) if discloses else frozenset()
        leaving = needed.union(*map(runner.shared_in, runner.assignment.stages))
        self.check_study(
            study,
            cases,
            leaving,
            discloses=discloses,
            from_images=shown,
            running=bool(leaving & statistics(runner.net)),
            weights=runner.weights.flat.numel(),
        )

    def check_study(
        self,
        study: Study,
        cases: int,
        leaving: Iterable[str],
        *,
        discloses: bool = False,
        from_images: bool = False,
        running: bool = False,
        weights: int = 0,
    ) -> None:
        """Refuse a run that goes beyond what this site allows.

        `weights` is their number in the network; `running` says whether statistics are to leave.
        """
        (choice,) = study.method
        refused = refused_settings(self.allow, [choice.name], budgets_of(study))
        refused += refused_training(self.allow, study)
        if cases < self.allow.cases:
            refused.append(
                f"there are {cases} training cases, and at least {self.allow.cases}"
                " are needed to take part"
            )
        refused += self._refused_parts(leaving)
        if discloses:
            refused += self._refused_disclosure()
        if from_images and SPECTRUM not in self.allow.extras:
            refused.append(FROM_IMAGES)
        if weights > self.allow.network_millions * 1e6:
            refused.append(
                f"a network of {weights / 1e6:.1f} million weights is larger than the "
                f"{self.allow.network_millions:g} million allowed"
            )
        if running and self.privacy is not None and not self.privacy.statistics:
            refused.append(STATISTICS)
        _refuse(refused)

    def check_cross_site(self, names: Iterable[str] = ()) -> None:
        """Refuse to give these weights of the model to others, or to score others' models here."""
        _refuse([*self._refused_disclosure(), *self._refused_parts(names)])

    def check_message(self, message: Message) -> None:
        """Refuse to let go what may not leave."""
        refused = self._refused_parts(message.weights)
        extras = dict.fromkeys(name.partition("/")[0] for name in message.extras)
        if DISCLOSED in extras and not self.allow.disclose:
            refused.append(NOT_DISCLOSED)
        if SPECTRUM in extras and SPECTRUM not in self.allow.extras:  # * does not stand for it
            refused.append(FROM_IMAGES)
        refused += [
            f"the extra {name!r} may not leave; allowed are {', '.join(self.allow.extras)}"
            for name in extras
            if name != SPECTRUM and not fits(name, self.allow.extras)
        ]
        if message.nbytes > self.largest:
            megabytes = message.nbytes / 1e6
            refused.append(
                f"a message of {megabytes:.0f} MB is larger than the "
                f"{self.allow.message_megabytes:g} MB allowed"
            )
        _refuse(refused)

    def check_recipients(self, keys: Iterable[str]) -> None:
        """Refuse to encrypt private weights to a key that the site's file does not name."""
        others = [key for key in keys if key not in self.allow.recipients]
        if self.allow.recipients and others:
            raise PolicyRefusal(
                f"private weights are to be encrypted to {listed(others, most=3)}, and "
                "allow.recipients does not name that key"
            )

    def check_received(self, message: Message) -> None:
        """Refuse a message of the server's with values that no training gives.

        A single one that is not finite would turn clipping off, because the update had no norm.
        """
        if bad := message.not_finite():
            raise PolicyRefusal(
                f"the server's message has values that are not finite: {listed(bad, most=3)}"
            )
        if large := message.absurd():
            raise PolicyRefusal(
                f"the server's message has weights beyond ±{LARGEST:g}: {listed(large, most=3)}"
            )

    def blurred(self, message: Message, received: Weights) -> tuple[Message, dict[str, float]]:
        """The message as it leaves, clipped and with noise if set, and the facts for the ledger."""
        if self.privacy is None or not (message.weights or message.extras):
            return message, {}
        self._refuse_unbounded(message, received)
        before = received.pick(message.weights.names).flat.cpu().double()
        change = (message.weights.flat.cpu().double() - before).numpy()
        noisy = released(change, self.privacy.clip, self.privacy.noise)
        flat = (before + torch.from_numpy(noisy)).float()
        facts = {"clip": self.privacy.clip, "noise": self.privacy.noise}
        if self.privacy.noise:
            facts["epsilon"] = self.ledger.epsilon(self.privacy.delta, [self.privacy.noise])
        # What a method counts of its own depends on the images, and has no noise.
        numbers = {name: message.numbers[name] for name in COUNTS if name in message.numbers}
        if math.isfinite(facts.get("epsilon", math.inf)):
            numbers["epsilon"] = facts["epsilon"]
        weights = Weights(message.weights.layout, flat)
        return replace(message, weights=weights, numbers=numbers), facts

    def _refused_parts(self, names: Iterable[str]) -> list[str]:
        parts = dict.fromkeys(name.partition(".")[0] for name in sorted(names))
        return [
            f"weights of the part {part!r} may not leave; allowed are {', '.join(self.allow.parts)}"
            for part in parts
            if not fits(part, self.allow.parts)
        ]

    def _refused_disclosure(self) -> list[str]:
        """Why this site's private weights may not leave it, told before anything is trained."""
        refused = []
        if not self.allow.disclose:
            refused.append(NOT_DISCLOSED)
        if not fits(DISCLOSED, self.allow.extras):
            allowed = ", ".join(self.allow.extras)
            refused.append(
                f"private weights are to be disclosed, and of extras only {allowed} may leave"
            )
        if self.privacy is not None:
            refused.append(
                "the method cannot run with privacy: private weights are to be disclosed, which "
                "clipping does not bound"
            )
        return refused

    def _refuse_unbounded(self, message: Message, received: Weights) -> None:
        """Say why a method cannot be blurred: something in its messages has no bound."""
        refused = []
        if message.extras:
            names = ", ".join(dict.fromkeys(name.partition("/")[0] for name in message.extras))
            refused.append(
                f"its messages carry more than an update of the weights ({names}), which clipping "
                "does not bound"
            )
        updated = message.weights.names & received.names
        if message.weights.layout != received.pick(updated).layout:
            refused.append(
                "it sends weights that are no update of weights received, so there is nothing to "
                "clip"
            )
        _refuse([f"the method cannot run with privacy: {reason}" for reason in refused])


def _refuse(reasons: list[str]) -> None:
    if reasons:
        raise PolicyRefusal("; ".join(reasons))
