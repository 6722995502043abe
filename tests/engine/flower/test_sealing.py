"""Disclosed weights: who can read them, and what happens to those that cannot be opened."""

import stat
from dataclasses import replace

import pytest
import torch

from polyclinic.engine.flower.sealing import KEYS, SealingKey, sealed
from polyclinic.engine.flower.wire import Payload, header_of
from polyclinic.engine.process import prepare_process
from polyclinic.engine.tensors import load_tensors
from polyclinic.federation.message import Message
from polyclinic.federation.weights import Weights
from polyclinic.runs import RunFolder
from tests.engine.flower.hospitals import Hospitals
from tests.engine.flower.in_process import InProcessLink
from tests.federations import equal

NETWORK = Weights.pack({"head.a": torch.zeros(3, 4), "head.b": torch.zeros(2)})
SECRET = {"head.a": torch.rand(3, 4), "head.b": torch.rand(2)}
CALIBRATED = '{name = "igc", iterations = 1}'


@pytest.fixture
def keys(tmp_path):
    return [SealingKey.kept_in(tmp_path / name) for name in ("north", "south", "coordinator")]


def handed_on(message):
    """A reply as the server hands it on to another site."""
    names = {name: name.replace("disclosed/", "disclosed/site-001/", 1) for name in message.extras}
    return Message(extras={names[name]: tensor for name, tensor in message.extras.items()})


def disclosed(*recipients, run="run"):
    message = Message(extras={f"disclosed/{name}": tensor for name, tensor in SECRET.items()})
    return handed_on(sealed(message, [key.public for key in recipients], run))


def test_only_recipients_can_open_what_was_sealed(keys):
    north, south, coordinator = keys
    message = disclosed(north, south)
    for key in (north, south):
        opened = key.opened(message, "run", NETWORK).extras
        assert equal(opened, {f"disclosed/site-001/{name}": t for name, t in SECRET.items()})
    assert coordinator.opened(message, "run", NETWORK).extras == {}
    data = Payload({}, message.extras).to_bytes()
    assert not any(tensor.numpy().tobytes()[:4] in data for tensor in SECRET.values())


def test_the_key_is_a_file_that_only_its_owner_reads(tmp_path):
    first = SealingKey.kept_in(tmp_path)
    assert SealingKey.kept_in(tmp_path).public == first.public
    assert stat.S_IMODE((tmp_path / "sealing.key").stat().st_mode) == 0o600


def changed(name, change):
    def spoil(extras):
        key = f"disclosed/site-001/{name}"
        return {**extras, key: change(extras[key].clone())}

    return spoil


def flipped(tensor):
    tensor[-1] ^= 1
    return tensor


@pytest.mark.parametrize(
    "spoil",
    [
        changed("head.a", flipped),
        changed("head.a", lambda tensor: tensor[:5]),
        changed(KEYS, flipped),
        changed(KEYS, lambda tensor: tensor[:1]),
        changed("head.a", lambda tensor: torch.full((3, 4), torch.nan)),
        changed("head.a", lambda tensor: torch.zeros(4, 3)),
        lambda extras: {**extras, "disclosed/site-001/other": torch.zeros(1)},
        lambda extras: {k: t for k, t in extras.items() if KEYS not in k},
    ],
)
def test_what_was_spoilt_on_its_way_is_left_out_and_the_rest_is_used(keys, spoil):
    north = keys[0]
    good = disclosed(north).extras
    other = {name.replace("site-001", "site-002"): tensor for name, tensor in good.items()}
    message = Message(extras={**spoil(good), **other, "control/x": torch.ones(1)})
    opened = north.opened(message, "run", NETWORK).extras
    assert {name.split("/")[1] for name in opened} == {"site-002", "x"}


def test_what_was_sealed_for_another_run_is_not_opened(keys):
    assert keys[0].opened(disclosed(keys[0]), "later", NETWORK).extras == {}


def test_what_the_server_fills_in_is_taken_as_it_is(keys):
    message, filled = disclosed(keys[0]), {"disclosed/site-001/head.b": torch.ones(2)}
    opened = keys[0].opened(replace(message, extras={**message.extras, **filled}), "run", NETWORK)
    assert equal(opened.extras, {"disclosed/site-001/head.a": SECRET["head.a"], **filled})


@pytest.fixture
def hospitals(tmp_path):
    prepare_process(1)
    return Hospitals(tmp_path, sites=3)


def slices(tensor):
    """Every four numbers of a tensor, as bytes; of those that are not alike."""
    values = tensor.flatten().float()
    pieces = (values[i : i + 4] for i in range(0, values.numel() - 3, 4))
    return [piece.numpy().tobytes() for piece in pieces if piece.unique().numel() > 2]


def test_nothing_private_can_be_read_between_the_sites_or_at_the_coordinator(hospitals):
    """Calibration, with which sites see each other's whole models: as in the local engine."""
    study = hospitals.study("fedbn", then=CALIBRATED)
    here = hospitals.run_locally(study)
    services = hospitals.services()
    link, seen = InProcessLink.of(services), []

    def keeping(respond):
        """Every file of the coordinator's, at the time of every message."""

        def kept(data):
            files = [f for f in (hospitals.folder / "runs").rglob("*") if f.is_file()]
            seen.extend(file.read_bytes() for file in files)
            return respond(data)

        return kept

    link.responding = {number: keeping(each) for number, each in link.responding.items()}
    hospitals.run_with(link, study)
    assert RunFolder(hospitals.run_folder(study)).finished
    for name in hospitals.names:
        local = load_tensors(here / "weights" / f"{name}.safetensors")[0]
        assert equal(hospitals.site_model(study, name), local)
    asked = [header_of(data).get("request", {}) for data in link.crossed]
    stages = [each["stage"] for each in asked if each.get("kind") == "stage"]
    assert "calibrate" in stages
    assert any("disclosed/" in str(header_of(data)) for data in link.crossed)
    readable = b"".join([*link.crossed, *dict.fromkeys(seen)])
    uncalibrated = hospitals.run_locally(hospitals.study("fedbn"))
    for name in hospitals.names:
        model = load_tensors(uncalibrated / "weights" / f"{name}.safetensors")[0]
        private = [piece for key, t in model.items() if "norm" in key for piece in slices(t)]
        assert private
        assert not any(piece in readable for piece in private)


def test_a_site_encrypts_only_to_the_keys_that_its_file_names(hospitals):
    services = hospitals.services('recipients = ["' + "ab" * 32 + '"]\n')
    study = hospitals.study("fedbn", "engine.name=flower", "engine.quorum=1", then=CALIBRATED)
    with pytest.raises(ValueError, match=r"allow\.recipients does not name that key"):
        hospitals.run_with(InProcessLink.of(services), study)


def test_a_new_key_of_a_site_is_told(hospitals):
    study, told = hospitals.study("fedavg", "federation.rounds=1"), []
    hospitals.run_with(InProcessLink.of(hospitals.services()), study)
    (hospitals.folder / "state" / hospitals.names[0] / "sealing.key").unlink()
    link = InProcessLink.of(hospitals.services())
    hospitals.run_with(link, study, fresh=True, tell=told.append)
    assert [f"{hospitals.names[0]} has a new key" in text for text in told] == [True]


def test_a_request_names_keys_only_where_something_is_disclosed(hospitals):
    link = InProcessLink.of(hospitals.services())
    hospitals.run_with(link, hospitals.study("fedbn", "federation.rounds=1", then=CALIBRATED))
    asked = [header_of(data).get("request", {}) for data in link.crossed]
    named = {each["stage"]: len(each["recipients"]) for each in asked if "recipients" in each}
    assert named["fit"] == named["calibrate"] == 0
    assert sorted(named.values()) == [0, 0, 0, 2]
