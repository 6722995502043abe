"""A site's service: what it refuses, what it keeps, what it lets out."""

import json

import pytest
import torch

from polyclinic.engine.flower.hosting import travelling
from polyclinic.engine.flower.payload import Payload
from polyclinic.engine.flower.protocol import Hello, Work
from polyclinic.engine.flower.scrubbing import scrubbed
from polyclinic.engine.flower.site_service import SiteService
from polyclinic.engine.flower.wire import pack, unpack
from polyclinic.engine.local import prepare
from polyclinic.federation.message import Message
from tests.engine.flower.hospitals import Hospitals


@pytest.fixture(autouse=True)
def _one_thread():
    prepare(1)


@pytest.fixture
def hospitals(tmp_path):
    return Hospitals(tmp_path, sites=1)


@pytest.fixture
def service(hospitals):
    (service,) = hospitals.services()
    return service


def asked(ask, message=None):
    payload = pack(message, "float32") if message else Payload({})
    return Payload({"ask": ask.model_dump(mode="json"), **payload.about}, payload.arrays)


def hello(study):
    return asked(Hello(study=travelling(study), run=""))


def work(service, study, *, reads=-1, writes=2, run="token", keep=(), message=None, **changes):
    about = service.answer(hello(study)).about["answer"]["about"]
    ask = Work(
        study=travelling(study),
        run=run,
        sites=((about["name"], 0, about["kind"], about["train"]),),
        number=1,
        reads=reads,
        keep=keep,
        stage="fit",
        writes=writes,
        encoding="float32",
    )
    ask = ask.model_copy(update=changes)
    weights = service._open(ask.study, _sites(ask)).runner.first_weights()
    return asked(ask, message or Message(weights))


def _sites(ask):
    from polyclinic.runs import AboutSite

    return tuple(AboutSite(name=n, kind=k, train=i, val=0, test=0) for n, _, k, i in ask.sites)


def test_a_hello_is_answered_with_what_the_site_has(service, hospitals):
    answer = service.answer(hello(hospitals.study())).about
    assert answer["site"] == hospitals.names[0]
    assert answer["answer"]["about"]["train"] > 0


def test_no_folder_of_the_coordinator_travels(hospitals):
    study = hospitals.study()
    text = travelling(study)
    assert str(hospitals.folder) not in text
    assert "engine" in text
    assert 'name = "flower"' not in text


def test_work_leaves_a_state_a_line_and_a_reply(service, hospitals):
    study = hospitals.study("fedbn")
    answer = service.answer(work(service, study))
    reply = unpack(answer)
    assert reply.numbers["steps"] == 2
    assert not any("running" in name for name in reply.weights)
    assert service.ledger.lines()[-1]["bytes"] == answer.nbytes
    assert service.ledger.mistakes() == []


def test_a_site_goes_on_from_the_state_that_the_server_names(service, hospitals):
    study = hospitals.study("fedbn")
    first = unpack(service.answer(work(service, study)))
    again = unpack(service.answer(work(service, study)))
    assert torch.equal(first.weights.flat, again.weights.flat)
    later = unpack(service.answer(work(service, study, reads=2, writes=4)))
    assert not torch.equal(first.weights.flat, later.weights.flat)


def test_an_answer_that_got_lost_leaves_again_without_more_training_or_noise(hospitals):
    (service,) = hospitals.services("[privacy]\nclip = 1.0\nnoise = 2.0\n")
    study = hospitals.study()
    ask = work(service, study)
    first, epsilon = service.answer(ask), service.ledger.epsilon(1e-5)
    assert service.answer(ask).arrays == first.arrays
    *_, before, after = service.ledger.lines()
    assert after["again"] is True
    assert after["content"] == before["content"]
    assert service.ledger.epsilon(1e-5) == epsilon > 0


def test_a_state_that_is_not_there_is_refused(service, hospitals):
    study = hospitals.study("fedbn")
    answer = service.answer(work(service, study, reads=2))
    assert "does not have the state that the server believes in" in answer.about["refused"]
    assert "it has none" in answer.about["refused"]


def test_a_state_of_another_run_is_refused(service, hospitals):
    study = hospitals.study("fedbn")
    service.answer(work(service, study, run="earlier"))
    answer = service.answer(work(service, study, reads=2, writes=4))
    assert "it has 2" in answer.about["refused"]


def test_only_states_that_may_be_asked_for_are_kept(service, hospitals):
    study = hospitals.study("fedbn")
    for version in range(2, 8):
        keep = (3, version - 1) if version > 3 else (version - 1,)
        reads = version - 1 if version > 2 else -1
        answer = service.answer(work(service, study, reads=reads, writes=version, keep=keep))
        assert "refused" not in answer.about
    folder = hospitals.run_folder(study, f"state/{hospitals.names[0]}/runs") / "states"
    kept = sorted(int(file.stem[-5:]) for file in folder.rglob("*.safetensors"))
    assert kept == [3, 6, 7]


def test_a_restarted_worker_goes_on_as_if_nothing_had_happened(service, hospitals):
    study = hospitals.study("fedbn")
    service.answer(work(service, study))
    other = SiteService(hospitals.site_file(hospitals.names[0]))
    prepare(1)
    expected = unpack(service.answer(work(service, study, reads=2, writes=4)))
    again = unpack(other.answer(work(other, study, reads=2, writes=4)))
    assert torch.equal(expected.weights.flat, again.weights.flat)


def test_disclosing_private_weights_is_refused_at_hello_where_their_part_may_not_leave(hospitals):
    study = hospitals.study("pflfe", then='{name = "igc", iterations = 1}')
    (strict,) = hospitals.services('parts = ["encoder"]\n')
    assert "refused" not in strict.answer(hello(hospitals.study("pflfe"))).about
    refused = strict.answer(hello(study)).about["refused"]
    assert "weights of the part 'decoder' may not leave" in refused


def test_what_is_made_from_images_is_refused_at_hello_unless_the_site_names_it(hospitals):
    study = hospitals.study("feddg")
    (usual,) = hospitals.services()
    refused = usual.answer(hello(study)).about["refused"]
    assert "the extra 'spectrum' is made from images" in refused
    assert 'extras = ["*", "spectrum"]' in refused
    assert "refused" not in usual.answer(hello(hospitals.study("scaffold"))).about
    (agreed,) = hospitals.services('extras = ["*", "spectrum"]\n')
    assert "refused" not in agreed.answer(hello(study)).about


def test_what_the_site_does_not_allow_is_refused_before_and_at_work(hospitals):
    (strict,) = hospitals.services("iterations = 1\n")
    study = hospitals.study()
    assert "training.iterations = 2" in strict.answer(hello(study)).about["refused"]


def test_a_site_that_is_mistaken_for_another_says_so(service, hospitals):
    study = hospitals.study()
    name = hospitals.names[0]
    for sites in (((name, 0, "mask", 3),), (("nobody", 0, "mask", 3),)):
        answer = service.answer(work(service, study, sites=sites))
        assert "takes site" in answer.about["refused"]


def test_labels_on_which_site_and_study_differ_are_refused(hospitals):
    file = hospitals.site_file(hospitals.names[0])
    study = hospitals.study()
    wanted = study.site[0].model_copy(update={"labels": "point"})
    study = study.model_copy(update={"site": (wanted,)})
    service = SiteService(file.model_copy(update={"labels": "mask"}))
    assert "wants site" in service.answer(hello(study)).about["refused"]
    own = SiteService(file.model_copy(update={"labels": "point"}))
    assert own.answer(hello(study)).about["answer"]["about"]["kind"] == "point"


@pytest.mark.parametrize("ask", [None, {"kind": "hello"}, {"kind": "obey", "study": ""}])
def test_what_is_no_ask_is_refused(service, ask):
    assert "no ask" in service.answer(Payload({"ask": ask})).about["refused"]


def test_messages_above_the_limit_are_refused(hospitals):
    (service,) = hospitals.services("message_megabytes = 0.001\n")
    study = hospitals.study()
    answer = service.answer(pack(Message(extras={"a": torch.zeros(1000)}), "float32"))
    assert "larger than the 0.001 MB" in answer.about["refused"]
    assert "refused" not in service.answer(hello(study)).about


def test_refusals_name_no_path_and_no_case(service, hospitals):
    study = hospitals.study()
    image = next((hospitals.folder / "data" / hospitals.names[0] / "images").iterdir())
    image.write_bytes(b"not a picture")
    refused = service.answer(hello(study)).about["refused"]
    assert refused
    assert str(hospitals.folder) not in refused
    assert image.stem not in refused
    assert "images/<case>: cannot be read" in refused


def test_scrubbing_takes_out_paths_cases_and_patients(hospitals):
    site = hospitals.site_file(hospitals.names[0])
    case = next((site.data / "images").iterdir()).stem
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
    answer = service.answer(work(service, study))
    folder = hospitals.run_folder(study, f"state/{hospitals.names[0]}/runs") / "states"
    from polyclinic.engine.tensors import load_tensors

    (file,) = folder.rglob("*.safetensors")
    state = load_tensors(file)[0]
    text = json.dumps(answer.about) + " ".join(answer.arrays)
    sent = b"".join(blob.data for blob in answer.arrays.values())
    private = {
        n: t for n, t in state.items() if t.numel() and not bool((t == t.flatten()[0]).all())
    }
    assert private
    for name, tensor in private.items():
        assert name.partition("/")[2] not in text
        assert tensor.numpy().tobytes() not in sent
