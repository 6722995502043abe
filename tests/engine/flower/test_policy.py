import pytest
import torch

from polyclinic.config.node_file import Permissions, PrivacySettings
from polyclinic.engine.flower.ledger import Ledger
from polyclinic.engine.flower.policy import Policy, PolicyRefusal
from polyclinic.federation.message import Message
from polyclinic.federation.weights import Weights
from tests.engine.flower.hospitals import Hospitals

MIXING = ("method.mixing.iterations=2", "method.mixing.first_passes=4")
START = ("training.pretrain=synthetic", "training.pretrain_steps=7")


@pytest.fixture
def study(tmp_path):
    hospitals = Hospitals(tmp_path, sites=1)
    return lambda *a, **k: hospitals.study(*a, **k)


@pytest.fixture
def policy(tmp_path):
    def make(privacy=None, **allow):
        ledger = Ledger(tmp_path / "ledger.jsonl")
        return Policy(Permissions(**allow), privacy and PrivacySettings(**privacy), ledger)

    return make


def weights(value: float = 0.0) -> Weights:
    return Weights.pack({"encoder.a": torch.full((300,), value), "head.b": torch.full((4,), value)})


def test_a_study_within_the_limits_passes(policy, study):
    policy().check_study(study(), 5, ["encoder.a", "head.b"])


def test_everything_beyond_the_limits_is_told_at_once(policy, study):
    strict = policy(iterations=1, epochs=3, methods=("fedbn",), parts=("enc*",), cases=6)
    wanted = study("fedavg", then='{name = "finetune", epochs = 20}')
    with pytest.raises(PolicyRefusal) as told:
        strict.check_study(wanted, 5, ["encoder.a", "head.b"])
    for words in (
        "method fedavg is not among those allowed (fedbn)",
        "training.iterations = 2 is more than the 1 allowed",
        "finetune.epochs = 20 is more than the 3 allowed",
        "5 training cases, and at least 6",
        "part 'head' may not leave; allowed are enc*",
    ):
        assert words in str(told.value)


def test_budgets_inside_a_method_s_settings_count_too(policy, study):
    wanted = study("feddp", "method.calibration.iterations=7")
    policy(iterations=7).check_study(wanted, 5, ["encoder.a"])
    with pytest.raises(
        PolicyRefusal, match=r"feddp\.calibration\.iterations = 7 is more than the 6"
    ):
        policy(iterations=6).check_study(wanted, 5, ["encoder.a"])


@pytest.mark.parametrize(
    ("method", "settings", "named", "steps"),
    [
        ("fedavg", START, "training.pretrain_steps", 7),
        ("pflfe", ("method.enhancement.share=3.1",), "pflfe.enhancement.share × training.it", 7),
        ("fedrep", ("method.head_share=4.0",), "fedrep.head_share × training.iterations", 8),
        ("metafed", ("method.alone=5.0",), "metafed.alone × training.iterations", 10),
        ("fedicra", MIXING, r"fedicra.mixing.first_passes × fedicra.mixing.iterations", 8),
    ],
)
def test_steps_beside_a_round_s_own_count_too(policy, study, method, settings, named, steps):
    wanted = study(method, *settings)
    policy(iterations=steps).check_study(wanted, 5, ["encoder.a"])
    with pytest.raises(PolicyRefusal, match=rf"{named}\w* = {steps} is more than the {steps - 1}"):
        policy(iterations=steps - 1).check_study(wanted, 5, ["encoder.a"])


def test_passes_over_images_count_as_epochs(policy, study):
    shares = ("method.mixing.share_of_images=0.7", "method.mixing.first_passes=5")
    wanted = study("fedicra", *shares)
    policy(epochs=4).check_study(wanted, 5, ["encoder.a"])
    with pytest.raises(PolicyRefusal, match=r"first_passes × .*share_of_images = 4 is more than"):
        policy(epochs=3).check_study(wanted, 5, ["encoder.a"])


def test_a_start_that_nobody_asked_for_is_no_budget(policy, study):
    policy(iterations=2).check_study(study(), 5, ["encoder.a"])


def test_disclosing_is_refused_before_anything_is_trained(policy, study):
    policy(disclose=True).check_study(study(), 5, ["encoder.a"], discloses=True)
    strict = policy({"clip": 1.0, "noise": 1.0}, extras=("control",))
    strict.check_study(study(), 5, ["encoder.a"])
    with pytest.raises(PolicyRefusal) as told:
        strict.check_study(study(), 5, ["encoder.a"], discloses=True)
    assert "to which this site has not agreed (allow.disclose = true)" in str(told.value)
    assert "private weights are to be disclosed, and of extras only control may leave" in str(
        told.value
    )
    assert "cannot run with privacy: private weights are to be disclosed" in str(told.value)


def test_nothing_is_disclosed_unless_the_site_agreed(policy):
    message = Message(extras={"disclosed/head.bias": torch.zeros(2)})
    policy(disclose=True).check_message(message)
    with pytest.raises(PolicyRefusal, match="has not agreed"):
        policy().check_message(message)


def test_messages_may_carry_only_what_is_allowed(policy):
    message = Message(weights(), {"control/a": torch.zeros(300000), "memory": torch.zeros(1)})
    policy().check_message(message)
    with pytest.raises(PolicyRefusal) as told:
        policy(parts=("encoder",), extras=("control",), message_megabytes=1.0).check_message(
            message
        )
    assert "part 'head'" in str(told.value)
    assert "extra 'memory'" in str(told.value)
    assert "larger than the 1 MB" in str(told.value)


def test_a_megabyte_is_a_million_bytes(policy):
    assert policy(message_megabytes=1.0).largest == 1_000_000


def test_without_privacy_messages_leave_as_they_are(policy):
    message = Message(weights(1.0))
    assert policy().blurred(message, weights()) == (message, {})
    blank = Message(numbers={"images": 1.0})
    assert policy({"clip": 1.0, "noise": 1.0}).blurred(blank, weights()) == (blank, {})


def test_an_update_is_clipped_to_its_norm(policy):
    clipping = policy({"clip": 0.5, "noise": 0.0})
    message, facts = clipping.blurred(Message(weights(3.0), numbers={"images": 1.0}), weights(1.0))
    change = message.weights.flat - 1.0
    assert float(change.norm()) == pytest.approx(0.5, rel=1e-5)
    assert torch.allclose(change, change[0])
    assert facts == {"clip": 0.5, "noise": 0.0}
    assert "epsilon" not in message.numbers
    small, _ = clipping.blurred(Message(weights(1.0001)), weights(1.0))
    assert torch.allclose(small.weights.flat, weights(1.0001).flat)


def test_noise_has_the_promised_deviation_and_differs_every_time(policy):
    noisy = policy({"clip": 2.0, "noise": 0.5, "delta": 1e-6})
    still = Message(weights(1.0))
    first, facts = noisy.blurred(still, weights(1.0))
    second, _ = noisy.blurred(still, weights(1.0))
    assert not torch.equal(first.weights.flat, second.weights.flat)
    draws = torch.cat([noisy.blurred(still, weights(1.0))[0].weights.flat - 1 for _ in range(30)])
    assert float(draws.std()) == pytest.approx(1.0, rel=0.05)
    assert first.numbers["epsilon"] == facts["epsilon"] == noisy.ledger.epsilon(1e-6, [0.5])


def test_methods_whose_messages_have_no_bound_are_refused_with_the_reason(policy):
    noisy = policy({"clip": 1.0, "noise": 1.0})
    with pytest.raises(PolicyRefusal, match="more than an update of the weights"):
        noisy.blurred(Message(weights(), {"control/a": torch.zeros(1)}), weights())
    with pytest.raises(PolicyRefusal, match="no update of weights received"):
        noisy.blurred(Message(weights()), Weights.pack({"head.b": torch.zeros(4)}))
    other = Weights.pack({"encoder.a": torch.zeros(3), "head.b": torch.zeros(4)})
    with pytest.raises(PolicyRefusal, match="no update of weights received"):
        noisy.blurred(Message(weights()), other)
