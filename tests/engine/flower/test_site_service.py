"""A site's service: what it refuses, what it keeps, what it lets out."""

import json

import pytest
import torch

from polyclinic.engine.flower.engine import travelling
from polyclinic.engine.flower.protocol import StageRequest, requesting
from polyclinic.engine.flower.scrubbing import scrubbed
from polyclinic.engine.flower.site_service import SiteService
from polyclinic.engine.flower.wire import Payload, header_of, pack, unpack
from polyclinic.engine.process import prepare_process
from polyclinic.federation.message import Message
from tests.engine.flower.hospitals import Hospitals, greeting, run_of


@pytest.fixture(autouse=True)
def _one_thread():
    prepare_process(1)


@pytest.fixture
def hospitals(tmp_path):
    return Hospitals(tmp_path, sites=1)


@pytest.fixture
def service(hospitals):
    (service,) = hospitals.services()
    return service


def header(service, data):
    return header_of(service.respond(data))


def reply(service, data):
    return unpack(Payload.from_bytes(service.respond(data)))


def stage(service, study, *, reads=-1, writes=2, run="token", keep=(), **changes):
    about = header(service, greeting(study))["response"]["about"]
    request = StageRequest(
        **run_of(study),
        run=run,
        labels=about["kind"],
        train=about["train"],
        number=1,
        reads=reads,
        keep=keep,
        stage="fit",
        writes=writes,
        encoding="float32",
    )
    request = request.model_copy(update=changes)
    opened = service.runs.open(request, about["kind"], about["train"])
    weights = opened.runner.first_weights()
    return pack(requesting(request), Message(weights), "float32").to_bytes()


def test_a_greeting_is_answered_with_what_the_site_has(service, hospitals):
    response = header(service, greeting(hospitals.study()))
    assert response["site"] == hospitals.names[0]
    assert response["response"]["about"]["train"] > 0


def test_no_folder_of_the_coordinator_travels(hospitals):
    study = hospitals.study()
    text = travelling(study, hospitals.names[0])
    assert str(hospitals.folder) not in text
    assert "engine" in text
    assert 'name = "flower"' not in text


def test_work_leaves_a_state_a_line_and_a_reply(service, hospitals):
    study = hospitals.study("fedbn")
    payload = Payload.from_bytes(service.respond(stage(service, study)))
    message = unpack(payload)
    assert message.numbers["steps"] == 2
    assert not any("running" in name for name in message.weights)
    line = service.ledger.lines()[-1]
    assert line["bytes"] == payload.nbytes
    assert line["arrays"].keys() == payload.tensors.keys()
    assert service.ledger.mistakes() == []


def test_a_site_goes_on_from_the_state_that_the_server_names(service, hospitals):
    study = hospitals.study("fedbn")
    first = reply(service, stage(service, study))
    again = reply(service, stage(service, study))
    assert torch.equal(first.weights.flat, again.weights.flat)
    later = reply(service, stage(service, study, reads=2, writes=4, number=2))
    assert not torch.equal(first.weights.flat, later.weights.flat)


def test_a_response_that_got_lost_leaves_again_without_more_training_or_noise(hospitals):
    (service,) = hospitals.services("[privacy]\nclip = 1.0\nnoise = 2.0\nstatistics = true\n")
    study = hospitals.study()
    request = stage(service, study)
    first, epsilon = service.respond(request), service.ledger.epsilon(1e-5)
    again = Payload.from_bytes(service.respond(request))
    assert again.digest() == Payload.from_bytes(first).digest()
    assert again.header["response"] == header_of(first)["response"]
    *_, before, after = service.ledger.lines()
    assert after["again"] is True
    assert after["arrays"] == before["arrays"]
    assert service.ledger.epsilon(1e-5) == epsilon > 0


def test_a_state_that_is_not_there_is_refused(service, hospitals):
    study = hospitals.study("fedbn")
    refused = header(service, stage(service, study, reads=2))["refused"]
    assert "does not have the state that the server believes in" in refused
    assert "it has none" in refused


def test_a_damaged_state_is_refused_with_what_to_do(service, hospitals):
    study = hospitals.study("fedbn")
    service.respond(stage(service, study))
    folder = hospitals.run_folder(study, f"state/{hospitals.names[0]}/runs") / "states"
    (file,) = folder.rglob("*.safetensors")
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    refused = header(service, stage(service, study, reads=2, writes=4, number=2))["refused"]
    assert "is damaged: its checksum is not that of its content" in refused
    assert "Bring it back from a backup" in refused
    assert str(folder) not in refused


def test_a_broken_ledger_lets_nothing_leave_and_says_why(service, hospitals):
    service.respond(greeting(hospitals.study()))
    with service.ledger.path.open("a") as file:
        file.write("nonsense\n")
    refused = header(service, greeting(hospitals.study()))["refused"]
    assert "line 2 of <path> is not a line of a ledger" in refused


def test_a_state_of_another_run_is_refused(service, hospitals):
    study = hospitals.study("fedbn")
    service.respond(stage(service, study, run="earlier"))
    refused = header(service, stage(service, study, reads=2, writes=4, number=2))["refused"]
    assert "it has none" in refused


def test_states_of_two_runs_are_kept_and_no_more(service, hospitals):
    study = hospitals.study("fedbn")
    for run in ("first", "second", "third"):
        assert "refused" not in header(service, stage(service, study, run=run))
    later = {"reads": 2, "writes": 4, "number": 2}
    answers = {
        run: header(service, stage(service, study, run=run, **later))
        for run in ("first", "second", "third")
    }
    assert ["refused" in each for each in answers.values()] == [True, False, False]


def test_only_states_that_may_be_asked_for_are_kept(service, hospitals):
    study = hospitals.study("fedbn", "federation.rounds=9")
    for version in range(2, 8):
        keep = (3, version - 1) if version > 3 else (version - 1,)
        reads = version - 1 if version > 2 else -1
        request = stage(service, study, reads=reads, writes=version, keep=keep, number=version)
        assert "refused" not in header(service, request)
    folder = hospitals.run_folder(study, f"state/{hospitals.names[0]}/runs") / "states"
    kept = sorted(int(file.stem[-5:]) for file in folder.rglob("*.safetensors"))
    assert kept == [3, 6, 7]


def test_a_restarted_worker_goes_on_as_if_nothing_had_happened(service, hospitals):
    study = hospitals.study("fedbn")
    service.respond(stage(service, study))
    other = SiteService(hospitals.site_file(hospitals.names[0]), hospitals.tables)
    prepare_process(1)
    expected = reply(service, stage(service, study, reads=2, writes=4, number=2))
    again = reply(other, stage(other, study, reads=2, writes=4, number=2))
    assert torch.equal(expected.weights.flat, again.weights.flat)


def test_disclosing_private_weights_is_refused_at_the_greeting_where_their_part_may_not_leave(
    hospitals,
):
    study = hospitals.study("pflfe", then='{name = "igc", iterations = 1}')
    (strict,) = hospitals.services('parts = ["encoder"]\n')
    assert "refused" not in header(strict, greeting(hospitals.study("pflfe")))
    refused = header(strict, greeting(study))["refused"]
    assert "weights of the part 'decoder' may not leave" in refused


def test_what_is_made_from_images_is_refused_at_the_greeting_unless_the_site_names_it(hospitals):
    study = hospitals.study("feddg")
    (usual,) = hospitals.services()
    refused = header(usual, greeting(study))["refused"]
    assert "the extra 'spectrum' is made from images" in refused
    assert 'extras = ["*", "spectrum"]' in refused
    assert "refused" not in header(usual, greeting(hospitals.study("scaffold")))
    (agreed,) = hospitals.services('extras = ["*", "spectrum"]\n')
    assert "refused" not in header(agreed, greeting(study))


def test_what_the_site_does_not_allow_is_refused_before_and_at_work(hospitals):
    (strict,) = hospitals.services("iterations = 1\n")
    study = hospitals.study()
    assert "training.iterations = 2" in header(strict, greeting(study))["refused"]


def test_a_site_that_is_mistaken_for_another_says_so(service, hospitals):
    study = hospitals.study()
    for wrong in ({"train": 3}, {"labels": "point"}, {"sites": ("nobody",)}):
        assert "takes site" in header(service, stage(service, study, **wrong))["refused"]


def test_a_run_that_the_study_does_not_have_is_refused(service, hospitals):
    for wrong in ({"method": "FedBN"}, {"seed": 7}):
        refused = header(service, greeting(hospitals.study(), **wrong))["refused"]
        assert "the study has no run of this method with this seed" in refused


def test_labels_on_which_site_and_study_differ_are_refused(hospitals):
    file = hospitals.site_file(hospitals.names[0])
    study = hospitals.study()
    wanted = study.site[0].model_copy(update={"labels": "point"})
    study = study.model_copy(update={"site": (wanted,)})
    service = SiteService(file.model_copy(update={"labels": "mask"}), hospitals.tables)
    assert "wants site" in header(service, greeting(study))["refused"]
    own = SiteService(file.model_copy(update={"labels": "point"}), hospitals.tables)
    assert header(own, greeting(study))["response"]["about"]["kind"] == "point"


@pytest.mark.parametrize("request_", [None, {"kind": "greeting"}, {"kind": "obey", "study": ""}])
def test_what_is_no_request_is_refused(service, request_):
    refused = header(service, Payload({"request": request_}).to_bytes())["refused"]
    assert "no request that this version understands" in refused
    assert "not a payload" in header(service, b"nonsense")["refused"]


def test_messages_above_the_limit_are_refused(hospitals):
    (service,) = hospitals.services("message_megabytes = 0.001\n")
    study = hospitals.study()
    large = pack({}, Message(extras={"a": torch.zeros(1000)}), "float32").to_bytes()
    assert "larger than the 0.001 MB" in header(service, large)["refused"]
    assert "refused" not in header(service, greeting(study))


def test_refusals_name_no_path_and_no_case(service, hospitals):
    study = hospitals.study()
    image = next((hospitals.folder / "data" / hospitals.names[0] / "images").iterdir())
    image.write_bytes(b"not a picture")
    refused = header(service, greeting(study))["refused"]
    assert refused
    assert str(hospitals.folder) not in refused
    assert image.stem not in refused
    assert "its data cannot be used; the log of the site says why under the code" in refused


def test_scrubbing_takes_out_paths_cases_and_patients(hospitals):
    site = hospitals.site_file(hospitals.names[0])
    case = next((site.data / "images").iterdir()).stem
    (site.data / "images" / "4711" / "IM0001").mkdir(parents=True)  # as DICOM comes
    assert scrubbed("IM0001 of 4711 is no block", site) == "<case> of <case> is no block"
    text = (
        f"cannot read {site.data}/images/{case}.png: {case} of /elsewhere/x/y or C:\\x; round 1/2"
    )
    clean = scrubbed(text, site)
    assert case not in clean
    assert "elsewhere" not in clean
    assert "round 1/2" in clean
    assert len(scrubbed("word " * 1000, site)) == 2000


def test_no_private_name_or_value_leaves_a_site(service, hospitals):
    """FedBN keeps its norm layers: neither their names nor their values are in the payload."""
    study = hospitals.study("fedbn")
    answer = Payload.from_bytes(service.respond(stage(service, study)))
    folder = hospitals.run_folder(study, f"state/{hospitals.names[0]}/runs") / "states"
    from polyclinic.engine.tensors import load_tensors

    (file,) = folder.rglob("*.safetensors")
    state = load_tensors(file)[0]
    text = json.dumps(answer.header) + " ".join(answer.tensors)
    sent = answer.to_bytes()
    private = {
        n: t for n, t in state.items() if t.numel() and not bool((t == t.flatten()[0]).all())
    }
    assert private
    for name, tensor in private.items():
        assert name.partition("/")[2] not in text
        assert tensor.numpy().tobytes() not in sent


def test_a_warm_start_that_shares_more_than_later_rounds_is_told_and_can_be_refused(hospitals):
    """Weights that are private in the end are refused at the greeting where they may not leave."""
    (strict,) = hospitals.services('parts = ["decoder", "head"]\n')
    warm = header(strict, greeting(hospitals.study("lg-fedavg", "method.warm_start=0.5")))
    assert "weights of the part 'encoder' may not leave" in warm["refused"]
    cold = header(strict, greeting(hospitals.study("lg-fedavg", "method.warm_start=0")))
    assert "refused" not in cold


def test_the_ledger_shows_what_a_warm_start_lets_out(service, hospitals):
    study = hospitals.study("lg-fedavg", "method.warm_start=0.5")
    whole = reply(service, stage(service, study, stage="warm"))
    part = reply(service, stage(service, study, reads=2, writes=4, number=2))
    *_, first, _, second = service.ledger.lines()  # between them another greeting
    assert first["stage"] == "warm"
    assert set(first["arrays"]) == {f"weights/{name}" for name in whole.weights}
    assert any(name.startswith("weights/encoder.") for name in first["arrays"])
    assert set(second["arrays"]) == {f"weights/{name}" for name in part.weights}
    assert not any(name.startswith("weights/encoder.") for name in second["arrays"])
