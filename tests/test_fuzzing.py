"""Thousands of damaged files: each is refused in words, or read as what it says."""

import random
import tomllib

import pytest
import torch

from polyclinic.config import ConfigError, load_study, to_toml
from polyclinic.engine.tensors import DamagedFile, load_tensors, save_tensors
from polyclinic.networks.pretrained import PretrainedError, load_pretrained
from tests.small_unet import TABLES, SmallUNet
from tests.within import within

STUDY = f"""\
name = "fuzzed"
seeds = [0, 1]
[task]
name = "octa"
resolution = 32
[data]
split = [0.7, 0.1, 0.2]
size = 0.5
[[site]]
name = "fjord"
labels = "mask"
[[site]]
name = "grove"
[network]
name = "{SmallUNet.name}"
width = 4
[[method]]
name = "fedavg"
[[method]]
name = "fedprox"
pull = 0.1
title = "near"
[training]
iterations = 3
batch = 4
learning_rate = 0.01
augmentation = {{ flips = true, rotation = 10.5 }}
[federation]
rounds = 2
[evaluation]
every = 1
metrics = ["dice", "hd95"]
pictures = false
"""
ODD = [*"\"'[]{}=.#\n\x00\x7f\\é-", "nan", "-1", "1e999", "true", "[[", "''' ", "{a={", "\ud800"]
ODD += ["9" * 400, "2026-11-18", '"\\u0000"', "0x10", "=", '"../.."', "inf", "[]", "{}", '""']


def altered(text: str, rng: random.Random) -> bytes:
    """A study file with one to three changes: pieces, values, lines or bytes."""
    for _ in range(rng.randint(1, 3)):
        place, end = sorted(rng.randrange(len(text) + 1) for _ in range(2))
        lines = text.splitlines(keepends=True) or [""]
        one, two = rng.randrange(len(lines)), rng.randrange(len(lines))
        kind = rng.randrange(7)
        if kind == 0:
            text = text[:place] + rng.choice(ODD) + text[place:]
        elif kind == 1:
            text = text[:place] + text[min(end, place + 6) :]
        elif kind == 2:
            lines[one] = f"{lines[one].partition('=')[0]}= {rng.choice(ODD)}\n"
            text = "".join(lines)
        elif kind == 3:
            lines[one], lines[two] = lines[two], lines[one]
            text = "".join(lines)
        elif kind == 4:
            lines.insert(one, lines[two])
            text = "".join(lines)
        else:
            digit = rng.choice([n for n, letter in enumerate(text) if letter.isdigit()] or [0])
            text = text[:digit] + rng.choice("0123456789") + text[digit + 1 :]
    content = bytearray(text.encode(errors="surrogatepass"))
    if content and rng.random() < 0.2:
        content[rng.randrange(len(content))] = rng.randrange(256)
    return bytes(content)


@pytest.mark.slow
def test_five_thousand_study_files_are_refused_in_words_or_read_as_they_are(tmp_path):
    rng, read = random.Random(0), 0
    file, again = tmp_path / "study.toml", tmp_path / "again.toml"
    for number in range(5000):
        file.write_bytes(altered(STUDY, rng))
        try:
            with within(f"study file {number}"):
                study = load_study(file, [], TABLES)
        except ConfigError:
            continue
        read += 1
        written = to_toml(study)
        again.write_text(written)
        assert to_toml(load_study(again, [], TABLES)) == written
        given = tomllib.loads(file.read_text())
        assert (study.name, study.federation.rounds) == (
            given["name"],
            given["federation"].get("rounds", 20) if "federation" in given else 20,
        )
    assert 200 < read < 4800


def spoilt(content: bytes, rng: random.Random) -> bytes:
    """A file with some bytes turned around, cut out, put in or cut off."""
    changed = bytearray(content)
    for _ in range(rng.randint(1, 3)):
        # The head of a safetensors file, where sizes and types stand, as often as the rest.
        most = len(changed) if rng.random() < 0.5 else min(len(changed), 600)
        place = rng.randrange(most) if most else 0
        kind = rng.randrange(4)
        if kind == 0 and most:
            changed[place] ^= rng.randrange(1, 256)
        elif kind == 1:
            changed[place:place] = rng.randbytes(rng.randint(1, 9))
        elif kind == 2:
            del changed[place : place + rng.randint(1, 9)]
        elif rng.random() < 0.2:
            del changed[place:]
    return bytes(changed)


def fresh() -> SmallUNet:
    torch.manual_seed(0)
    return SmallUNet(channels=1, classes=2, width=2)


@pytest.mark.slow
def test_two_thousand_files_of_weights_are_refused_or_the_very_same(tmp_path):
    rng, file, refused = random.Random(1), tmp_path / "weights.safetensors", 0
    whole = {name: each.clone() for name, each in fresh().state_dict().items()}
    save_tensors(file, whole, {"method": "FedAvg"})
    content, texts = file.read_bytes(), {"method": "FedAvg"}
    for number in range(2000):
        file.write_bytes(spoilt(content, rng))
        try:
            with within(f"file of weights {number}"):
                found, told = load_tensors(file)
        except DamagedFile:
            refused += 1
            continue
        assert told == texts
        assert found.keys() == whole.keys()
        assert all(torch.equal(found[name], whole[name]) for name in whole)
    assert refused > 1000


@pytest.mark.slow
def test_two_thousand_files_to_start_from_are_refused_or_give_finite_weights(tmp_path):
    rng, file, refused = random.Random(2), tmp_path / "start.safetensors", 0
    save_tensors(file, fresh().state_dict(), {})
    content = file.read_bytes()
    for number in range(2000):
        file.write_bytes(spoilt(content, rng))
        net = fresh()
        try:
            with within(f"file to start from {number}"):
                match = load_pretrained(net, file)
        except PretrainedError:
            refused += 1
            continue
        assert match.loaded
        assert all(bool(each.isfinite().all()) for each in net.state_dict().values())
    assert refused > 500
