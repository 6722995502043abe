"""One of three sites means harm: the coordinator trusts no number of its replies."""

import random
import re
from dataclasses import replace

import pytest
import torch

from polyclinic.engine.flower.wire import Payload, header_of
from polyclinic.engine.process import prepare_process
from polyclinic.runs import RunFolder
from tests.engine.flower.hospitals import Hospitals
from tests.engine.flower.in_process import InProcessLink
from tests.engine.flower.spoilers import listing
from tests.within import within

ONCE = ("federation.rounds=1", "training.iterations=1", "evaluation.every=0")


@pytest.fixture(scope="module")
def hospitals(tmp_path_factory):
    prepare_process(1)
    return Hospitals(tmp_path_factory.mktemp("hospitals"), sites=3)


def counting(**counts):
    def spoil(payload):
        numbers = payload.header["message"]["numbers"]
        return listing(payload, numbers={**numbers, **counts})

    return spoil


def scaled(factor):
    def spoil(payload):
        return replace(payload, tensors={n: t * factor for n, t in payload.tensors.items()})

    return spoil


def filled(value):
    def spoil(payload):
        tensors = {n: torch.full_like(t, value) for n, t in payload.tensors.items()}
        return replace(payload, tensors=tensors)

    return spoil


def left_out(hospitals, spoil, *overrides, method="fedavg"):
    """What the coordinator says of the first site, once another has an unspoilt model."""
    state = f"state-{id(spoil)}"
    link = InProcessLink.of(hospitals.services(state=state))
    honest = link.responding[101]

    def hostile(data: bytes) -> bytes:
        answer = honest(data)
        if header_of(data)["request"].get("stage") != "fit":
            return answer
        return spoil(Payload.from_bytes(answer)).to_bytes()

    link.responding[101] = hostile
    study = hospitals.study(method, *ONCE, *overrides)
    hospitals.run_with(link, study)
    folder = RunFolder(hospitals.run_folder(study))
    (line,) = [each for each in folder.rounds() if each.missed]
    assert (line.site, line.stage) == (hospitals.names[0], "fit")
    weights = hospitals.site_model(study, hospitals.names[1], state)
    assert all(float(t.abs().max()) < 100 for t in weights.values() if t.is_floating_point())
    return line.missed


@pytest.mark.parametrize("images", [1e30, -5.0, 10**9, 0.5, 7.0])
def test_a_site_cannot_count_its_images_anew(hospitals, images):
    said = left_out(hospitals, counting(images=images))
    assert "images" in said


@pytest.mark.parametrize("steps", [1e9, 30.0, 1.0])
def test_a_site_cannot_count_more_or_fewer_steps_than_the_others(hospitals, steps):
    """FedNova goes further for a site that says it took fewer."""
    said = left_out(hospitals, counting(steps=steps), "training.iterations=8", method="fednova")
    assert f"{steps:.0f} steps behind it" in said


def test_weights_that_are_finite_but_absurd_are_left_out(hospitals):
    assert "weights beyond ±1e+06" in left_out(hospitals, filled(3e38))


def test_a_change_far_longer_than_the_others_is_left_out(hospitals):
    assert "times as long as the median one" in left_out(hospitals, scaled(1000.0))


@pytest.mark.parametrize(
    ("factor", "words"), [(1e30, "weights beyond"), (1000.0, r"extras \d+ times as long")]
)
def test_extras_far_longer_than_the_others_are_left_out(hospitals, factor, words):
    """One hostile site would spoil SCAFFOLD's common control, and with it every later round."""

    def spoil(payload):
        extras = {n: t * factor for n, t in payload.tensors.items() if n.startswith("extras/")}
        assert extras
        return replace(payload, tensors={**payload.tensors, **extras})

    assert re.search(words, left_out(hospitals, spoil, method="scaffold"))


def test_the_study_says_how_much_longer_a_change_may_be(hospitals):
    said = left_out(hospitals, scaled(2.0), "engine.name=flower", "engine.stray=1.5")
    assert "times as long as the median one" in said


def spoilt(answer: bytes, rng: random.Random) -> bytes:
    """A reply with bytes turned around, cut out, put in, cut off, or values set to odd ones."""
    changed = bytearray(answer)
    payload = Payload.from_bytes(answer)
    if payload.tensors and rng.random() < 0.4:
        odd = rng.choice([float("nan"), float("inf"), -3e38, 1e6, 0.0])
        name = rng.choice(sorted(payload.tensors))
        filled_ = {name: torch.full_like(payload.tensors[name], odd)}
        return replace(payload, tensors={**payload.tensors, **filled_}).to_bytes()
    for _ in range(rng.randint(1, 3)):
        # The header, where names and numbers stand, as often as the rest.
        place = rng.randrange(min(len(changed), rng.choice([400, len(changed)])))
        kind = rng.randrange(4)
        if kind == 0:
            changed[place] ^= rng.randrange(1, 256)
        elif kind == 1:
            changed[place:place] = rng.randbytes(rng.randint(1, 9))
        elif kind == 2:
            del changed[place : place + rng.randint(1, 9)]
        else:
            changed[place : place + 1] = rng.choice([b"-", b"9" * 30, b'"', b"{", b"\x00", b"null"])
    return bytes(changed)


STUDIES = {  # replies of different kinds: weights, controls, prompts, single models, sealed models
    "fedavg": "",
    "scaffold": "",
    "ditto": "",
    "fedlppa": "",
    "fedsm": "",
    "fedbn": '{name = "igc", iterations = 1}',
}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("method", STUDIES)
def test_a_thousand_spoilt_replies_stop_no_study(hospitals, method, seed):
    """At least 30 in each of 36 studies, of any stage and with scores; the rest is honest."""
    rng, sent = random.Random(f"{method} {seed}"), []
    state = f"fuzzed-{method}-{seed}"
    link = InProcessLink.of(hospitals.services(state=state))
    honest = link.responding[101]

    def hostile(data: bytes) -> bytes:
        answer = honest(data)
        if header_of(data)["request"]["kind"] not in ("stage", "score"):
            return answer
        sent.append(spoilt(answer, rng))
        return sent[-1]

    link.responding[101] = hostile
    settings = ("training.iterations=1", "federation.rounds=28", "evaluation.every=14")
    study = hospitals.study(method, *settings, then=STUDIES[method])
    with within(f"{method}, seed {seed}", seconds=3000):
        hospitals.run_with(link, study)
    folder = RunFolder(hospitals.run_folder(study))
    assert folder.finished
    missed = [line for line in folder.rounds() if line.missed]
    assert {line.site for line in missed} == {hospitals.names[0]}
    assert len(missed) > 5
    weights = hospitals.site_model(study, hospitals.names[1], state)
    assert all(bool(t.isfinite().all()) for t in weights.values())
    assert all(float(t.abs().max()) <= 1e6 for t in weights.values() if t.is_floating_point())
    assert len(sent) >= 30
