"""A coordinator that means harm, against the real code of a site."""

import math
from hashlib import sha256
from statistics import pstdev

import pytest
import torch

from polyclinic.data.batches import normalised
from polyclinic.data.load import load_federation
from polyclinic.engine.flower.ledger import summary
from polyclinic.engine.flower.privacy import epsilon_of
from polyclinic.engine.flower.scrubbing import refusal
from polyclinic.engine.flower.wire import header_of
from polyclinic.engine.process import prepare_process
from polyclinic.engine.run import runs_of
from polyclinic.federation.weights import Weights
from polyclinic.runs import RunFolder
from tests.engine.flower.hospitals import SIDE, Hospitals, greeting, run_of, score_more
from tests.engine.flower.hostile import Coordinator


@pytest.fixture(autouse=True)
def _one_thread():
    prepare_process(1)


@pytest.fixture
def hospitals(tmp_path):
    return Hospitals(tmp_path, sites=1)


def changed(weights, name_has, value):
    """The weights with one value of one tensor replaced."""
    tensors = {name: tensor.clone().contiguous() for name, tensor in weights.items()}
    name = next(name for name in tensors if name_has in name)
    tensors[name].view(-1)[0] = value
    return Weights.pack(tensors)


@pytest.mark.parametrize("value", [math.nan, math.inf, 3e38])
def test_no_value_in_a_message_turns_clipping_off(hospitals, value):
    (service,) = hospitals.services("[privacy]\nclip = 0.001\nnoise = 1.0\nstatistics = true\n")
    attacker = Coordinator(service, hospitals.study())
    lines = len(service.ledger.lines())
    answer = attacker.stage(weights=changed(attacker.first, "running_mean", value))
    assert "the server's message has" in answer.header["refused"]
    assert not answer.tensors
    assert not any(line["bytes"] for line in service.ledger.lines()[lines:])


def test_an_honest_message_leaves_clipped_with_its_epsilon_and_without_its_loss(hospitals):
    (service,) = hospitals.services("[privacy]\nclip = 0.001\nnoise = 1.0\nstatistics = true\n")
    answer = Coordinator(service, hospitals.study()).stage()
    assert answer.header["response"]["loss"] is None
    line = service.ledger.lines()[-1]
    assert line["epsilon"] == service.ledger.epsilon(1e-5) == pytest.approx(4.3772, abs=1e-3)
    assert all(torch.isfinite(tensor).all() for tensor in answer.tensors.values())


FINETUNED = '{name = "finetune", iterations = 1}'


def test_a_finished_model_cannot_be_fetched_by_training_it_once_more(hospitals):
    """With an empty message the site would train, and send, what it has: its own model."""
    (service,) = hospitals.services()
    attacker = Coordinator(service, hospitals.study("fedavg", then=FINETUNED))
    nothing = attacker.first.pick(frozenset())
    assert attacker.stage().tensors
    assert "refused" not in attacker.stage("finalize", 3, reads=1, writes=7).header
    assert "refused" not in attacker.stage("finetune", 3, reads=7, writes=8, weights=nothing).header
    for number in (1, 2, 3, 4):
        for reads in (7, 8):
            answer = attacker.stage(number=number, reads=reads, writes=9, weights=nothing)
            assert not answer.tensors
            words = ("cannot follow", "has no stage")
            assert any(word in answer.header["refused"] for word in words)


def test_a_study_altered_under_its_name_does_not_get_the_state(hospitals):
    """FedBN keeps its norms; FedAvg under the same title and token would send them."""
    (service,) = hospitals.services()
    private = hospitals.study("fedbn")
    attacker = Coordinator(service, private)
    assert attacker.stage().tensors
    other = hospitals.study("fedavg", "method.title=FedBN")
    attacker.run = run_of(other.model_copy(update={"name": private.name}))
    norms = frozenset(name for name in attacker.first if "norm" not in name)
    answer = attacker.stage(number=2, reads=1, writes=2, weights=attacker.first.pick(norms))
    assert not answer.tensors
    assert "settings of the study are not those" in answer.header["refused"]


def test_scores_are_given_only_where_the_study_has_them(hospitals):
    (service,) = hospitals.services()
    attacker = Coordinator(service, hospitals.study())  # two rounds, validated after the second
    attacker.stage()
    attacker.stage(number=2, reads=1, writes=2)
    assert "refused" not in attacker.score(reads=2).header
    for wrong in (
        {"number": 1},
        {"number": 3},
        {"metrics": ("dice", "iou")},
        {"split": "test"},
        {"finalize": False},
    ):
        refused = attacker.score(**({"reads": 2} | wrong)).header["refused"]
        assert "does not score" in refused
    attacker.stage("finalize", 3, reads=2, writes=6)
    assert "a state of round 3 is not that of 2" in attacker.score(reads=6).header["refused"]


def test_masks_cannot_be_read_through_ever_more_score_requests(hospitals):
    (service,) = hospitals.services()
    attacker = Coordinator(service, hospitals.study())
    attacker.stage()
    crafted = [changed(attacker.first, "head", float(value)) for value in range(12)]
    answers = [attacker.score(weights=weights).header for weights in crafted]
    assert ["refused" in answer for answer in answers] == [False] * 11 + [True]
    assert "allow.repeats = 10" in answers[-1]["refused"]
    # A coordinator that was resumed asks for the same, and that tells it nothing new.
    assert "refused" not in attacker.score(weights=crafted[0]).header


def test_a_stage_cannot_be_asked_for_ever_more_even_by_runs_with_other_tokens(hospitals):
    (service,) = hospitals.services()
    attacker = Coordinator(service, hospitals.study("fedavg", "training.iterations=1"))
    crafted = [changed(attacker.first, "head", float(value)) for value in range(12)]
    answers = [attacker.stage(run=str(n), weights=weights) for n, weights in enumerate(crafted)]
    assert ["refused" in each.header for each in answers] == [False] * 11 + [True]


NO_AUGMENTATION = ("training.augmentation.flips=false", "training.augmentation.rotation=0")
ONE_IMAGE = ("training.batch=1", "training.iterations=1", "training.learning_rate=1e-6")
MEAN = "encoder.levels.0.norm1.running_mean"


def read_one_image(hospitals, policy):
    """An attack by running statistics: what leaves is an image's own mean, to all its digits.

    The first layer passes images on as they are, and a batch is one image. None where refused.
    """
    (service,) = hospitals.services(policy)
    study = hospitals.study("fedavg", *ONE_IMAGE, *NO_AUGMENTATION)
    if "refused" in header_of(service.respond(greeting(study))):
        return None
    attacker = Coordinator(service, study)
    tensors = {name: tensor.clone() for name, tensor in attacker.first.items()}
    tensors["encoder.levels.0.conv1.weight"].zero_()[0, :, 1, 1] = 1.0
    tensors["encoder.levels.0.conv1.bias"].zero_()
    tensors[MEAN].zero_()
    reply = attacker.stage(weights=Weights.pack(tensors)).tensors
    return float(reply[f"weights/{MEAN}"][0]) / 0.1  # the momentum of BatchNorm


def test_what_an_attack_reads_of_one_image_does_not_leave_with_the_defaults(hospitals):
    """Where a hospital gives up its bounds, the same attack gets through: it is no straw man."""
    read = read_one_image(hospitals, "batch = 1\naugmentation = false\n")
    (data,) = load_federation(
        hospitals.study().task.built, hospitals.study().data, hospitals.study().site
    )
    images = range(len(data.train))
    means = [float(normalised(data.train, torch.tensor([i]), "cpu").images.mean()) for i in images]
    assert min(abs(read - mean) for mean in means) < 1e-6
    assert len({round(mean, 5) for mean in means}) == len(means)  # one of them, and no other
    for policy in ("", "augmentation = false\n", "batch = 1\n"):
        assert read_one_image(hospitals, policy) is None


def test_running_statistics_stay_where_noise_is_on_unless_the_hospital_says_otherwise(hospitals):
    privacy = "[privacy]\nclip = 1.0\nnoise = 1.0\n"
    (service,) = hospitals.services(privacy)
    refused = header_of(service.respond(greeting(hospitals.study())))
    assert refused["code"] == "policy"
    assert "running statistics of norm layers are to leave" in refused["refused"]
    private = hospitals.study("fedavg", "federation.statistics=private")
    answer = Coordinator(service, private).stage()
    assert answer.tensors
    assert not any("running" in name for name in answer.tensors)
    (agreed,) = hospitals.services(privacy + "statistics = true\n")
    assert "refused" not in header_of(agreed.respond(greeting(hospitals.study())))


def read_areas(hospitals, policy):
    """An attack by scores: where all is predicted as foreground, Dice tells a mask's area.

    The areas, one for each value that came back, and how many of 50 requests were answered.
    """
    (service,) = hospitals.services(policy)
    attacker = Coordinator(service, hospitals.study())
    attacker.stage()
    found, answered = [], 0
    for number in range(50):
        tensors = {name: tensor.clone() for name, tensor in attacker.first.items()}
        tensors["head.weight"].zero_()
        tensors["head.bias"].copy_(torch.tensor([0.0, 5.0 + number]))
        answer = attacker.score(weights=Weights.pack(tensors)).header
        answered += "response" in answer
        if not number:
            dices = [row[3] for row in answer["response"]["rows"]]
            found = [SIDE * SIDE * dice / (2 - dice) for dice in dices]
    return found, answered


def test_what_an_attack_reads_of_each_mask_does_not_leave_with_the_defaults(hospitals):
    score_more(hospitals.folder / "data" / hospitals.names[0], 1, "val")
    read, answered = read_areas(hospitals, 'scores = "cases"\nrepeats = 100\n')
    (data,) = load_federation(
        hospitals.study().task.built, hospitals.study().data, hospitals.study().site
    )
    areas = sorted(int((mask == 1).sum()) for mask in data.val.masks)
    assert len(areas) > 1
    assert sorted(read) == pytest.approx(areas, abs=1.5)  # of every case, to a pixel or so
    assert answered == 50
    read, answered = read_areas(hospitals, 'scores = "mean"\n')
    assert len(read) == 1 < len(areas)  # the mean over all cases
    assert answered == 11  # one that the study has, and allow.repeats


def test_noise_is_not_averaged_away_by_the_same_message_again_and_again(hospitals):
    """Each answer has noise of its own, so the same message counts as another one."""
    (service,) = hospitals.services("[privacy]\nclip = 1.0\nnoise = 1.0\nstatistics = true\n")
    attacker = Coordinator(service, hospitals.study("fedavg", "training.iterations=1"))
    answers = [attacker.stage(run=str(number)) for number in range(12)]
    assert ["refused" in each.header for each in answers] == [False] * 11 + [True]
    assert service.ledger.epsilon(1e-5) == pytest.approx(epsilon_of([1.0] * 11, 1e-5))
    # The very same request, whose answer got lost, gets the very same answer.
    assert "refused" not in attacker.stage(run="10").header


@pytest.mark.parametrize("method", ["pflfe", "virtual-classes"])
def test_with_noise_no_number_of_a_method_s_own_leaves(hospitals, method):
    """Spreads of embeddings are made from images, and nothing bounds or blurs them."""
    (service,) = hospitals.services("[privacy]\nclip = 1.0\nnoise = 1.0\nstatistics = true\n")
    study = hospitals.study(method)
    stage = next(iter(runs_of(study, hospitals.folder)[0].choice.built.each_round())).name
    answer = Coordinator(service, study).stage(stage)
    assert set(answer.header["message"]["numbers"]) == {"images", "steps", "epsilon"}


def test_models_of_others_are_not_scored_without_end(hospitals):
    """A coordinator can craft weights for a site's key, and make up whose they are."""
    (service,) = hospitals.services("validations = 3\n")
    once = ("federation.rounds=1", "evaluation.cross_site=true")
    attacker = Coordinator(service, hospitals.study("fedavg", *once))
    (own,) = attacker.run["sites"]
    attacker.run["sites"] = (own, *(f"site-{number:03d}" for number in range(2, 8)))
    attacker.stage()
    assert "refused" not in attacker.stage("finalize", 2, reads=1, writes=3).header
    answers = [attacker.guest(owner).header for owner in attacker.run["sites"][1:]]
    assert ["refused" in each for each in answers] == [False] * 3 + [True] * 3
    assert "allow.validations = 3" in answers[-1]["refused"]


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        (("method.name=scaffold", "method.learning_rate=5"), "scaffold.learning_rate makes a"),
        (("method.name=per-fedavg", "method.inner_rate=5"), "per-fedavg.inner_rate makes a"),
        ("method.then=[{name='finetune', rate=1e30}]", "finetune.rate makes a learning rate of"),
        ("training.batch=1", "training.batch = 1 is fewer than the 4 images needed"),
        ("training.learning_rate=1e-30", "learning_rate = 1e-30 is not between 1e-06 and the 0.1"),
        ("training.learning_rate=5", "learning_rate = 5 is not between 1e-06 and the 0.1"),
        ("federation.rounds=5000", "federation.rounds = 5000 is more than the 1000 allowed"),
        ("task.resolution=2048", "task.resolution = 2048 is more than the 1024 allowed"),
        (("federation.rounds=900", "evaluation.every=2"), "450 validations, after every 2 of 900"),
        ("task.resolution=16", "task.resolution = 16 is less than the 32 pixels needed"),
        ("task.tile=16", "task.tile = 16 is less than the 32 pixels needed"),
        (NO_AUGMENTATION, "training.augmentation leaves all images nearly as they are"),
        (
            (NO_AUGMENTATION[0], "training.augmentation.rotation=1e-30"),
            "training.augmentation leaves all images nearly as they are",
        ),
    ],
)
def test_settings_under_which_an_image_shows_are_refused_at_the_greeting(hospitals, setting, words):
    (service,) = hospitals.services()
    settings = (setting,) if isinstance(setting, str) else setting
    study = hospitals.study("fedavg", *settings)
    assert words in header_of(service.respond(greeting(study))).get("refused", "")


def test_a_network_larger_than_allowed_is_refused_at_the_greeting(hospitals):
    (service,) = hospitals.services("network_millions = 0.0005\n")
    refused = header_of(service.respond(greeting(hospitals.study()))).get("refused", "")
    assert "million weights is larger than the 0.0005 million allowed" in refused


def test_only_means_and_spreads_leave_unless_the_hospital_says_otherwise(tmp_path):
    hospitals = Hospitals(tmp_path, sites=1, task="fundus")  # two regions
    score_more(tmp_path / "data" / hospitals.names[0], 1)
    (service,) = hospitals.services('scores = "mean"\n')
    attacker = Coordinator(service, hospitals.study())
    attacker.stage()
    attacker.stage(number=2, reads=1, writes=2)
    assert "refused" not in attacker.stage("finalize", 3, reads=2, writes=6).header
    answer = attacker.score(reads=6, split="test", finalize=False).header["response"]
    (own,) = (hospitals.folder / "state").rglob("scores.csv")
    rows = [line.split(",") for line in own.read_text().splitlines()[1:]]
    assert len(answer["rows"]) == len(answer["spreads"]) == 2 < len(rows)
    assert answer["notes"] == {}
    for case, region, _, value, patient in answer["rows"]:
        assert patient == 0
        values = [float(row[6]) for row in rows if region in row]
        assert case == "test mean"
        assert value == pytest.approx(sum(values) / len(values), abs=5.1e-4)
        (spread,) = [each[2] for each in answer["spreads"] if each[0] == region]
        assert spread == pytest.approx(pstdev(values), abs=5.1e-4)


@pytest.mark.parametrize(("scores", "allowed"), [("shared", False), ("both", True)])
def test_models_as_trained_are_scored_only_where_the_study_does_that(hospitals, scores, allowed):
    (service,) = hospitals.services()
    attacker = Coordinator(service, hospitals.study("fedavg", f"evaluation.scores={scores}"))
    attacker.stage()
    attacker.stage(number=2, reads=1, writes=2)
    attacker.stage("finalize", 3, reads=2, writes=6)
    assert "refused" not in attacker.score(reads=6, split="test", finalize=False).header
    how = {"split": "test", "finalize": False, "model": "trained"}
    answers = [attacker.score(reads=2, **how).header for _ in range(2)]
    assert all(("refused" not in answer) == allowed for answer in answers)
    assert "refused" in attacker.score(reads=6, **how).header  # that is the model in use
    assert "refused" in attacker.score(reads=2, model="trained").header  # of validation cases
    (own,) = (hospitals.folder / "state").rglob("scores.csv")
    kept = RunFolder(own.parent).scores("test", "trained")
    assert len(kept) == len(set(kept)) == (len(answers[0]["response"]["rows"]) if allowed else 0)


NAME = "Müller, Anna"


def without_suffix(folder):
    (folder / "images" / NAME).write_bytes(b"")


def quoted_in_the_table(folder):
    with (folder / "cases.csv").open("a") as table:
        table.write(f'"{NAME}",1,train\n')


def in_the_settings(folder):
    (folder / "site.toml").write_text(f'labels = "{NAME}"\n')


@pytest.mark.parametrize("put", [without_suffix, quoted_in_the_table, in_the_settings])
def test_refusals_name_nobody_wherever_the_name_stands(hospitals, put):
    put(hospitals.folder / "data" / hospitals.names[0])
    (service,) = hospitals.services()
    refused = header_of(service.respond(greeting(hospitals.study())))["refused"]
    assert not any(word in refused for word in NAME.split(", "))
    assert "its data cannot be used; the log of the site says why under the code" in refused


def test_of_a_program_that_fails_only_the_kind_of_error_is_told(hospitals):
    site = hospitals.site_file(hospitals.names[0])
    told = refusal(KeyError(NAME), "c0de", site)
    assert told == "its program failed (KeyError); the log of the site says why under the code c0de"


def test_a_greeting_that_is_refused_reads_no_data_and_divides_none(hospitals):
    (service,) = hospitals.services('iterations = 1\nparts = ["head"]\n')
    for file in (hospitals.folder / "data").rglob("*.png"):
        file.write_bytes(b"whoever reads this fails")
    for study in (hospitals.study(), hospitals.study("fedavg", "training.iterations=1")):
        refused = header_of(service.respond(greeting(study)))["refused"]
        assert "allowed" in refused
    assert not (service.site.state / "splits").exists()
    assert not list((hospitals.folder / "data").rglob("splits*"))


def test_every_byte_that_leaves_has_a_line_with_its_hash(hospitals):
    """Greetings, scores and refusals too; recomputed from what the coordinator got."""
    (service,) = hospitals.services()
    left = []
    honest = service.respond
    service.respond = lambda data: left.append(honest(data)) or left[-1]
    attacker = Coordinator(service, hospitals.study())
    attacker.stage()
    attacker.score()
    attacker.score(number=1)
    service.respond(b"nonsense")
    lines = service.ledger.lines()
    assert [line["stage"] for line in lines] == ["greeting", "fit", "score val", *["refusal"] * 2]
    assert [line["content"] for line in lines] == [sha256(data).hexdigest() for data in left]
    assert [line["sent"] for line in lines] == [len(data) for data in left]
    assert "2 requests refused" in summary(service.ledger)
