"""Rules against hostile replies, up to their published breakdown points and beyond them."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from polyclinic.catalog import BUILT_IN
from polyclinic.config import ConfigError, FederationSettings, load_study
from polyclinic.federation.combining import bounded, combined, krum, trimmed
from polyclinic.federation.message import Message
from polyclinic.federation.mixing import mix
from polyclinic.federation.server import Server
from polyclinic.federation.weights import Weights
from polyclinic.methods import METHODS
from polyclinic.methods.fedavg import FedAvg
from polyclinic.runs import RunError
from tests.federations import equal, run_locally

LAST = "evaluation.choose=last"
ATTACKS = {
    "huge": lambda honest, index: torch.full_like(honest[0], 1e30),
    "opposite": lambda honest, index: torch.full_like(honest[0], 1e30 * (-1) ** index),
    "turned round": lambda honest, index: -100 * honest.mean(0),
    "just outside": lambda honest, index: honest.max(0).values + 0.01,
    "zero": lambda honest, index: torch.zeros_like(honest[0]),
}


def replies(honest: int, hostile: int, attack: str, seed: int = 0, size: int = 40):
    """Replies round a common point, those of the hostile sites first by name."""
    rng = torch.Generator().manual_seed(seed)
    true = torch.randn(size, generator=rng) + 0.1 * torch.randn(honest, size, generator=rng)
    false = [ATTACKS[attack](true, index) for index in range(hostile)]
    parts = {f"a{n}": values for n, values in enumerate(false)}
    parts |= {f"h{n}": values for n, values in enumerate(true)}
    return {site: Weights.pack({"w": values}) for site, values in parts.items()}, true


def inside(found: Weights, honest: torch.Tensor) -> bool:
    low, high = honest.min(0).values - 1e-6, honest.max(0).values + 1e-6
    return bool(((found.flat >= low) & (found.flat <= high)).all())


@pytest.mark.parametrize("attack", ATTACKS)
@given(seed=st.integers(0, 30))
def test_two_hostile_of_seven_cannot_leave_the_honest_range(attack, seed):
    parts, honest = replies(5, 2, attack, seed)
    assert inside(trimmed(parts, None), honest)
    assert inside(trimmed(parts, 2), honest)
    chosen = krum(parts, 2)
    assert chosen.startswith("h") or attack == "just outside"
    # A reply that hides among the honest ones may be chosen, but then it lies among them.
    spread = torch.cdist(honest, honest).max()
    assert (parts[chosen].flat - honest).norm(dim=1).min() <= spread


def test_one_hostile_reply_carries_the_mean_away():
    parts, honest = replies(6, 1, "huge")
    assert not inside(mix(parts, [1 / 7] * 7), honest)
    assert inside(trimmed(parts, 1), honest)


def test_the_median_breaks_when_half_are_hostile_and_not_before():
    assert inside(trimmed(*medians(4, 3)), replies(4, 3, "huge")[1])
    assert not inside(trimmed(*medians(3, 4)), replies(3, 4, "huge")[1])


def medians(honest, hostile):
    return replies(honest, hostile, "huge")[0], None


def test_the_trimmed_mean_breaks_with_one_more_than_it_cuts():
    for hostile, holds in ((2, True), (3, False)):
        parts, honest = replies(7 - hostile, hostile, "huge")
        assert inside(trimmed(parts, 2), honest) == holds


def test_krum_breaks_when_the_hostile_replies_are_their_own_neighbours():
    parts, _ = replies(3, 4, "huge")  # three nearest others are needed, and all are at hand
    assert krum(parts, 2).startswith("a")


@pytest.mark.parametrize("attack", ["huge", "opposite", "turned round"])
def test_a_bound_lets_hostile_replies_move_the_mean_by_their_share_of_an_honest_step(attack):
    parts, honest = replies(5, 2, attack)
    before = Weights.pack({"w": honest.mean(0) + 0.5})
    steps = (honest - before.flat).norm(dim=1)
    found = bounded(parts, before, 1.0)
    fair = before.flat + (honest - before.flat).sum(0) / 7
    # Each honest step is at most cut to the bound as well; the hostile ones are not longer.
    most = 2 / 7 * steps.max() + 5 / 7 * (steps.max() - steps.min())
    assert (found.flat - fair).norm() <= most + 1e-5


def test_a_bound_breaks_when_most_are_hostile():
    parts, honest = replies(3, 4, "huge")
    before = Weights.pack({"w": honest.mean(0)})
    assert (bounded(parts, before, 1.0).flat - before.flat).norm() > 1e20


def test_a_wide_bound_is_the_equal_mean_bit_by_bit():
    parts, _ = replies(5, 0, "huge")
    before = Weights.pack({"w": torch.zeros(40)})
    assert torch.equal(bounded(parts, before, 1e6).flat, mix(parts, [1 / 5] * 5).flat)


@given(count=st.integers(1, 8), seed=st.integers(0, 50))
def test_the_median_is_numpys(count, seed):
    parts, honest = replies(count, 0, "huge", seed)
    expected = np.median(honest.double().numpy(), axis=0).astype(np.float32)
    assert np.array_equal(trimmed(parts, None).flat.numpy(), expected)


@given(count=st.integers(5, 9), seed=st.integers(0, 50))
def test_krum_is_the_published_formula(count, seed):
    parts, honest = replies(count, 0, "huge", seed)
    points = honest.double().numpy()
    hostile = (count - 3) // 2
    scores = []
    for i in range(count):
        squares = sorted(((points[i] - points[j]) ** 2).sum() for j in range(count) if j != i)
        scores.append(sum(squares[: count - hostile - 2]))
    assert krum(parts, hostile) == f"h{int(np.argmin(scores))}"


@pytest.mark.parametrize("rule", ["median", "trimmed", "krum", "bounded"])
def test_equal_replies_are_a_fixed_point_and_their_order_is_irrelevant(rule):
    settings = FederationSettings(combine=rule, **needed(rule))
    parts, _ = replies(7, 0, "huge")
    before = Weights.pack({"w": torch.zeros(40)})
    backwards = dict(reversed(parts.items()))
    one, other = combined(parts, before, settings), combined(backwards, before, settings)
    assert torch.equal(one.flat, other.flat)
    alike = dict.fromkeys(parts, parts["h0"])
    assert torch.equal(combined(alike, before, settings).flat, parts["h0"].flat)
    assert combined(alike, before, settings).flat.data_ptr() != parts["h0"].flat.data_ptr()


def needed(rule):
    return {"hostile": 2} if rule in ("trimmed", "krum") else {}


def test_the_mean_is_the_mixing_function_as_it_was():
    parts, _ = replies(5, 0, "huge")
    messages = {
        site: Message(part, numbers={"images": 3.0 + n})
        for n, (site, part) in enumerate(parts.items())
    }
    server = Server((), parts["h0"], FederationSettings(), 0)
    expected = mix(parts, [n / 25 for n in (3, 4, 5, 6, 7)])
    assert torch.equal(server.combined(messages).flat, expected.flat)


# In a study.


@dataclass(frozen=True)
class Attacked(FedAvg):
    """FedAvg whose first site answers with weights far away from everything."""

    def send(self, site):
        reply = super().send(site)
        if site.info.index == 0:
            reply.weights.flat.fill_(1e4)
        return reply


def test_a_hostile_site_spoils_the_mean_of_a_study_but_not_its_median(federation, monkeypatch):
    monkeypatch.setitem(METHODS, "attacked", Attacked)
    small = federation(sites=3, rounds=1)
    mean = small.run("attacked", LAST).tensors("server")
    median = small.run("attacked", "federation.combine=median", LAST).tensors("server")
    trim = ("federation.combine=trimmed", "federation.hostile=1")
    trimmed_mean = small.run("attacked", *trim, LAST).tensors("server")
    assert min(float(tensor.min()) for tensor in mean.values()) > 1000
    assert max(float(tensor.abs().max()) for tensor in median.values()) < 100
    assert equal(median, trimmed_mean)  # of three replies one is left


@pytest.mark.parametrize("method", ["fedavg", "fedbn", "ditto", "local", "centralized"])
def test_methods_that_average_take_any_rule(federation, method):
    done = federation(rounds=1).run(method, "federation.combine=median", LAST)
    assert done.folder.finished
    assert done.folder.settings()["federation"]["combine"] == "median"
    assert "weighting" not in done.folder.settings()["federation"]


def test_methods_that_cannot_take_a_rule_are_told_all_at_once(tmp_path):
    names = ("fedavg", "scaffold", "metafed", "fedlppa")
    methods = "".join(f'[[method]]\nname = "{name}"\n' for name in names)
    file = tmp_path / "study.toml"
    file.write_text('task = "octa"\n' + methods + '[federation]\ncombine = "median"\n')
    with pytest.raises(RunError) as told:
        run_locally(load_study(file, [], BUILT_IN), tmp_path, watch=lambda run, event: None)
    assert 'federation.combine = "median" does not go with' in str(told.value)
    for words in ("SCAFFOLD: its common control", "MetaFed: it hands", "FedLPPA: every site's"):
        assert words in str(told.value)
    assert "FedAvg" not in str(told.value)


@dataclass(frozen=True)
class OwnWay(FedAvg):
    """A method that combines replies without asking for the rule."""

    def combine(self, server, replies):
        server.weights = next(iter(replies.values())).weights


def test_a_method_that_combines_in_its_own_way_must_say_that_it_takes_any_rule():
    assert OwnWay().needs_mean() == "it combines replies in a way of its own"
    assert FedAvg().needs_mean() == ""


def test_too_few_sites_for_a_rule_are_an_error_before_anything_is_trained(federation):
    small = federation(sites=4, rounds=1)
    settings = ("federation.combine=krum", "federation.hostile=1")
    with pytest.raises(ValueError, match="needs 5 sites in every round, and there are 4") as told:
        small.run("fedavg", *settings, name="krum")
    assert "at most hostile = 0" in str(told.value)
    assert not (small.folder / "runs" / "krum" / "fedavg" / "seed-0" / "study.toml").exists()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (("combine=krum",), "must be at least 1"),
        (("hostile=1",), "has no effect"),
        (("combine=bounded", "hostile=1"), "has no effect"),
        (("combine=median", "weighting=steps"), "has no effect"),
        (("combine=median", "bound=2.0"), "has no effect"),
        (("combine=medain",), "median"),
    ],
)
def test_settings_without_effect_are_mistakes(federation, settings, words):
    with pytest.raises(ConfigError, match=words):
        federation().study("fedavg", *(f"federation.{each}" for each in settings))
