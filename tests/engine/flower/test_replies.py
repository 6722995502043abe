import pytest
import torch

from polyclinic.engine.flower.carrier import PayloadError
from polyclinic.engine.flower.replies import check_disclosure
from polyclinic.engine.flower.sealing import SealingKey, sealed
from polyclinic.federation.message import Message
from polyclinic.federation.weights import Weights

NETWORK = Weights.pack({"encoder.q": torch.zeros(3, 4), "head.bias": torch.zeros(2)})


def disclosing(**tensors):
    return Message(
        extras={f"disclosed/{name.replace('_', '.')}": each for name, each in tensors.items()}
    )


def test_a_disclosure_that_fits_the_network_is_accepted(tmp_path):
    key = SealingKey.kept_in(tmp_path).public
    check_disclosure(sealed(disclosing(encoder_q=torch.rand(3, 4)), [key], "run"), NETWORK)
    check_disclosure(sealed(Message(), [], "run"), NETWORK)


@pytest.mark.parametrize(
    "tensors",
    [
        {"encoder_q": torch.rand(3, 4)},  # readable
        {"encoder_q": torch.zeros(40, dtype=torch.uint8)},
        {"encoder_q": torch.zeros(4000, dtype=torch.uint8)},
        {"head_weight": torch.zeros(100, dtype=torch.uint8)},
    ],
)
def test_a_disclosure_without_a_place_in_the_network_or_readable_is_refused(tensors):
    name = next(iter(tensors)).replace("_", ".")
    with pytest.raises(PayloadError, match=f"discloses what the network does not have.*{name}"):
        check_disclosure(disclosing(**tensors), NETWORK)
