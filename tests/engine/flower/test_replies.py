import pytest
import torch

from polyclinic.engine.flower.carrier import PayloadError
from polyclinic.engine.flower.replies import check_disclosure
from polyclinic.federation.message import Message
from polyclinic.federation.weights import Weights

NETWORK = Weights.pack({"encoder.q": torch.zeros(3, 4), "head.bias": torch.zeros(2)})


def disclosing(**tensors):
    return Message(
        extras={f"disclosed/{name.replace('_', '.')}": each for name, each in tensors.items()}
    )


def test_a_disclosure_that_fits_the_network_is_accepted():
    check_disclosure(disclosing(encoder_q=torch.rand(3, 4)), NETWORK)
    check_disclosure(Message(), NETWORK)


@pytest.mark.parametrize(
    "tensors",
    [
        {"encoder_q": torch.rand(4, 3)},
        {"encoder_q": torch.zeros(3, 4, dtype=torch.int64)},
        {"head_weight": torch.rand(2)},
    ],
)
def test_a_disclosure_without_a_place_in_the_network_is_refused(tensors):
    name = next(iter(tensors)).replace("_", ".")
    with pytest.raises(PayloadError, match=f"discloses what the network does not have.*{name}"):
        check_disclosure(disclosing(**tensors), NETWORK)
