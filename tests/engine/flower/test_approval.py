"""A site approves a study by its hash; requests of any other are refused."""

import pytest

from polyclinic.engine.flower import greeting as greetings
from polyclinic.engine.flower.approval import Approvals, Unapproved
from polyclinic.engine.flower.engine import travelling
from polyclinic.engine.flower.order import study_hash
from polyclinic.engine.flower.protocol import StageRequest, requesting
from polyclinic.engine.flower.site_service import SiteService
from polyclinic.engine.flower.wire import Payload, header_of
from polyclinic.engine.process import prepare_process
from polyclinic.runs import RunError, RunFolder
from tests.engine.flower.hospitals import Hospitals, greeting, run_of
from tests.engine.flower.in_process import InProcessLink


@pytest.fixture(autouse=True)
def _one_thread():
    prepare_process(1)


@pytest.fixture
def hospitals(tmp_path):
    return Hospitals(tmp_path, sites=2)


def service_of(hospitals, studies="[]", extra=""):
    file = hospitals.site_file(hospitals.names[0], extra, studies=studies)
    return SiteService(file, hospitals.tables)


def answer(service, study, **changes):
    return header_of(service.respond(greeting(study, service.site.name, **changes)))


def test_a_study_that_nobody_approved_is_described_and_reads_no_data(hospitals):
    service, study = service_of(hospitals), hospitals.study("fedbn")
    for file in (hospitals.folder / "data").rglob("*.png"):
        file.write_bytes(b"whoever reads this fails")
    refused = answer(service, study)
    assert refused["code"] == "approval"
    (waiting,) = service.approvals.waiting()
    assert waiting in refused["refused"]
    text = service.approvals.description(waiting).read_text()
    for words in (
        f'The study "{study.name}" asks {service.site.name} to take part',
        "task: octa (background, ",
        "methods: FedBN; each with the seeds 0",
        "in each run 2 rounds of 2 steps with 4 images",
        "FedBN: 3 messages, 2 of them with weights of decoder, encoder, head",
        "running statistics of norm layers stay here",
        "of validation cases once, of test cases once",
        "no noise ([privacy] is off)",
    ):
        assert words in text
    line = service.ledger.lines()[-1]
    assert (line["stage"], line["code"]) == ("refusal", "approval")


def test_noise_is_in_the_description_with_the_epsilon_of_the_whole_study(hospitals):
    service = service_of(hospitals, extra="[privacy]\nclip = 1.0\nnoise = 2.0\n")
    answer(service, hospitals.study("fedbn"))
    (waiting,) = service.approvals.waiting()
    assert "ε 2.9 at δ = 1e-05" in service.approvals.description(waiting).read_text()


@pytest.mark.parametrize(("noise", "warned"), [(0.01, False), (2.0, True)])
def test_noise_that_drowns_what_is_learned_is_warned_of(hospitals, noise, warned):
    service = service_of(hospitals, extra=f"[privacy]\nclip = 1.0\nnoise = {noise}\n")
    answer(service, hospitals.study("fedbn"))
    (waiting,) = service.approvals.waiting()
    page = service.approvals.description(waiting).read_text()
    assert ("WARNING: this noise is" in page) == warned


def test_what_is_disclosed_or_made_from_images_is_in_the_description(hospitals):
    service = service_of(hospitals, extra='extras = ["*", "spectrum"]\n')
    answer(service, hospitals.study("feddg"))
    answer(service, hospitals.study("fedsm"))
    texts = [service.approvals.description(each).read_text() for each in service.approvals.seen()]
    assert sum("FedDG sends tensors that are made from images" in text for text in texts) == 1
    assert sum("FedSM discloses private weights to the other sites" in text for text in texts) == 1


def test_an_approval_holds_for_this_study_only_and_can_be_taken_back(hospitals):
    service, study = service_of(hospitals), hospitals.study()
    answer(service, study)
    (waiting,) = service.approvals.waiting()
    approvals = Approvals(service.site.state, ())  # as another process sees them
    approvals.approve(approvals.named(waiting[:12]))
    assert "refused" not in answer(service, study)
    for other in (
        study.model_copy(update={"seeds": (0, 1)}),
        study.model_copy(update={"name": "another"}),
        study.model_copy(update={"training": study.training.model_copy(update={"batch": 5})}),
    ):
        assert answer(service, other)["code"] == "approval"
    approvals.withdraw(waiting)
    assert answer(service, study)["code"] == "approval"
    with pytest.raises(ValueError, match="beginning of 0 studies"):
        approvals.named("nothing")


def test_every_request_needs_the_approval_not_only_the_greeting(hospitals):
    service, study = service_of(hospitals), hospitals.study()
    request = StageRequest(
        **run_of(study, run="token", labels="mask", train=5, number=1, reads=-1, keep=()),
        stage="fit",
        writes=1,
        encoding="float32",
    )
    refused = header_of(service.respond(Payload(requesting(request)).to_bytes()))
    assert refused["code"] == "approval"
    assert not list(service.site.state.rglob("*.safetensors"))


def test_a_hash_in_the_site_s_file_approves_in_advance(hospitals):
    study = hospitals.study()
    wanted = study_hash(travelling(study, hospitals.names[0]), {})
    service = service_of(hospitals, f'["{wanted}"]')
    assert "refused" not in answer(service, study)
    assert "approved in advance" in service.approvals.seen()[wanted]
    assert answer(service, hospitals.study())["code"] == "approval"


def test_the_hash_is_of_settings_and_versions(hospitals):
    text = travelling(hospitals.study(), hospitals.names[0])
    assert study_hash(text, {}) != study_hash(text, {"mine": "1.0"})
    assert study_hash(text, {}) != study_hash(text + " ", {})


def test_a_study_beyond_the_bounds_is_refused_and_waits_for_nobody(hospitals):
    service = service_of(hospitals, extra="iterations = 1\n")
    assert answer(service, hospitals.study())["code"] == "policy"
    assert service.approvals.seen() == {}


def test_no_more_studies_are_described_than_people_read(tmp_path):
    approvals = Approvals(tmp_path, ["approved"])
    for number in range(25):
        with pytest.raises(Unapproved):
            approvals.check(f"study-{number}", lambda: "words")
    assert len(approvals.waiting()) == 20
    approvals.approve("study-3")
    with pytest.raises(Unapproved, match="have not approved"):
        approvals.check("study-24", lambda: "words")


def test_methods_are_described_in_the_study_s_order(hospitals):
    service = service_of(hospitals)
    first, second = hospitals.study("fedavg"), hospitals.study("fedbn")
    both = first.model_copy(update={"method": (*first.method, *second.method), "seeds": (3, 4)})
    answer(service, both)
    (waiting,) = service.approvals.waiting()
    text = service.approvals.description(waiting).read_text()
    assert "methods: FedAvg, FedBN; each with the seeds 3, 4" in text
    assert "FedAvg: 6 messages, 4 of them with weights" in text
    assert "of validation cases 4 times, of test cases 4 times" in text


def test_the_coordinator_waits_until_the_people_at_the_site_approve(hospitals, monkeypatch):
    monkeypatch.setattr(greetings, "ASK_AGAIN", 0.01)
    files = [hospitals.site_file(name, studies="[]") for name in hospitals.names]
    services = [SiteService(file, hospitals.tables) for file in files]
    link, greeted = InProcessLink.of(services), []
    honest = link.responding[101]

    def respond(data):
        """The first site's people approve after it was asked three times, the second's at once."""
        greeted.append(data)
        for service in services[1:] if len(greeted) < 3 else services:
            for study in service.approvals.waiting():
                service.approvals.approve(study)
        return honest(data)

    link.responding[101] = respond
    study = hospitals.study("fedavg", "federation.rounds=1", "seeds=[0, 1]")
    hospitals.run_with(link, study)
    assert RunFolder(hospitals.run_folder(study)).finished
    assert [len(service.approvals.seen()) for service in services] == [1, 1]  # one, for two runs


def test_a_study_that_is_not_approved_in_time_ends_with_the_names_of_the_sites(
    hospitals, monkeypatch
):
    monkeypatch.setattr(greetings, "ASK_AGAIN", 0.01)
    files = [hospitals.site_file(name, studies="[]") for name in hospitals.names]
    services = [SiteService(file, hospitals.tables) for file in files]
    study = hospitals.study("fedavg", "engine.name=flower", "engine.deadline=0.2")
    with pytest.raises(RunError) as told:
        hospitals.run_with(InProcessLink.of(services), study)
    for name in hospitals.names:
        assert f"{name}: it refused: the people at this site have not approved" in str(told.value)


@pytest.mark.parametrize(
    ("method", "then"), [("fedavg", ""), ("fedsm", ""), ("fedbn", '{name = "igc", iterations = 1}')]
)
def test_a_site_hears_no_name_label_or_number_of_another(tmp_path, method, then):
    hospitals = Hospitals(tmp_path, sites=3, train=[6, 7, 8])
    services = hospitals.services()
    link = InProcessLink.of(services)
    first, others = hospitals.names[0], hospitals.names[1:]
    heard = []
    honest = link.responding[101]
    link.responding[101] = lambda data: heard.append(data) or honest(data)
    labels = [
        f"site.{name}.labels={kind}" for name, kind in zip(others, ("block", "point"), strict=True)
    ]
    study = hospitals.study(method, "federation.rounds=1", *labels, then=then)
    hospitals.run_with(link, study)
    assert RunFolder(hospitals.run_folder(study)).finished
    for data in heard:
        header = str(header_of(data))
        assert first in header
        for word in (*others, "block", "point"):
            assert word not in header
            assert word.encode() not in data
        request = header_of(data)["request"]
        assert request.get("train", 6) == 6
