"""What noise and its accounting are worth: checked against other formulas and by attack."""

import math
import secrets

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.stats import kstest, norm

from polyclinic.config.node_file import Permissions, PrivacySettings
from polyclinic.engine.flower.ledger import Ledger
from polyclinic.engine.flower.policy import Policy
from polyclinic.engine.flower.privacy import STEPS, NotFinite, epsilon_of, gaussian, released
from polyclinic.federation.message import Message
from polyclinic.federation.weights import Weights


def blurred(folder, change, noise):
    """What leaves for an update from zero, as the policy of a site makes it."""
    settings = PrivacySettings(clip=1.0, noise=noise)
    policy = Policy(Permissions(), settings, Ledger(folder / "ledger.jsonl"))
    sent = Message(Weights.pack({"head.a": change}))
    return policy.blurred(sent, Weights.pack({"head.a": torch.zeros_like(change)}))[0].weights.flat


def test_no_seed_can_be_tried_out_that_takes_the_noise_away(tmp_path, monkeypatch):
    """An attacker who knows two zero weights and all but 8 bits of a seed finds the update.

    Without the known bits it takes minutes: torch's generator has 2³² states to begin with.
    """
    drawn = secrets.randbits
    monkeypatch.setattr(secrets, "randbits", lambda bits: drawn(min(bits, 8)))
    change = torch.linspace(0, 0.05, 300)
    change[:2] = 0
    seen = blurred(tmp_path, change, 2.0)
    for seed in range(256):
        noise = torch.randn(300, generator=torch.Generator().manual_seed(seed)) * 2
        assert not torch.allclose(seen[:2], noise[:2], atol=1e-5)


def test_every_value_of_noise_has_bits_of_its_own_from_the_operating_system(tmp_path, monkeypatch):
    drawn, taken = secrets.token_bytes, []
    monkeypatch.setattr(secrets, "token_bytes", lambda n: taken.append(n) or drawn(n))
    blurred(tmp_path, torch.zeros(1000), 1.0)
    assert sum(taken) >= 8 * 1000


def test_the_noise_is_gaussian():
    draws = gaussian(200_001)
    assert draws.size == 200_001
    assert kstest(draws, norm.cdf).pvalue > 1e-6
    assert abs(np.corrcoef(draws[:100_000], draws[100_000:-1])[0, 1]) < 0.02


def test_what_leaves_lies_on_a_grid_that_does_not_depend_on_the_update():
    step = 2.0 * 0.5 / STEPS
    for change in (np.zeros(500), np.full(500, math.pi / 1000)):
        steps = released(change, 2.0, 0.5) / step
        assert np.array_equal(steps, np.rint(steps))


def test_an_update_is_never_longer_than_the_clip():
    rng = np.random.default_rng(1)
    for scale in (1e-3, 1.0, 1e30):
        clipped = released(rng.normal(size=999) * scale, 0.5, 0.0)
        assert np.linalg.norm(clipped) <= 0.5 * (1 + 1e-12)


@pytest.mark.parametrize("value", [math.nan, math.inf, 1e200])
def test_an_update_without_a_finite_norm_never_leaves(value):
    with pytest.raises(NotFinite):
        released(np.array([0.0, value]), 1.0, 1.0)


@pytest.mark.parametrize(("noise", "messages"), [(1.0, 1), (0.8, 10), (4.0, 100), (0.3, 40)])
def test_epsilon_is_exact(noise, messages):
    """δ at the ε we state, integrated from the definition: how far P exceeds e^ε times Q."""
    epsilon, mu = epsilon_of([noise] * messages, 1e-5), math.sqrt(messages) / noise

    def beyond(x):
        return norm.pdf(x, mu) - math.exp(epsilon) * norm.pdf(x)

    start = epsilon / mu + mu / 2  # where P begins to exceed
    delta, _ = quad(beyond, start, start + 12, epsabs=1e-14, limit=200)
    assert delta == pytest.approx(1e-5, rel=1e-5)


@pytest.mark.parametrize(
    ("noise", "messages", "epsilon"),
    [(1, 1, 4.377178096), (2, 1, 1.993091404), (4, 100, 13.206712240), (0.8, 10, 23.995358987)],
)
def test_epsilon_is_what_dp_accounting_0_6_says(noise, messages, epsilon):
    assert epsilon_of([noise] * messages, 1e-5) == pytest.approx(epsilon, abs=1e-7)


def test_releases_without_noise_have_no_epsilon():
    assert epsilon_of([], 1e-5) == 0
    assert epsilon_of([1.0, 0.0], 1e-5) == math.inf
