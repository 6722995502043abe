import pytest
import torch

from polyclinic.networks import NETWORKS
from polyclinic.networks.attention import ChannelAttention, DualAttention, SpatialAttention
from polyclinic.networks.prompted_segmenter import ContextGate, PromptedSegmenter, Prompts


def prompts(size=4, **switches):
    torch.manual_seed(0)
    all_on = {"universal": True, "distribution": True, "sparsity": True}
    made = Prompts(3, size, **{**all_on, **switches})
    made.place[1] = made.sparsity[2] = 1
    return made


def small(gate="residual", second="copy", **changes):
    settings = {"attention": "dual", "channel_weights": "distance", "prompts": prompts()}
    net = NETWORKS["unet"](channels=1, classes=2, width=2)
    return PromptedSegmenter(net, gate=gate, second=second, **{**settings, **changes})


def test_prompts_are_the_common_one_the_sites_own_and_the_kind_of_labels():
    made = prompts()
    given = made(torch.rand(2, 7, 4, 4)).detach()
    assert given.shape == (2, 5, 4, 4)
    torch.testing.assert_close(given[0, 0], made.universal[0])
    torch.testing.assert_close(given[1, 1], made.sites[1])
    assert [float(given[0, channel].unique()) for channel in (2, 3, 4)] == [0, 0, 1]


@pytest.mark.parametrize("missing", ["universal", "distribution", "sparsity"])
def test_a_prompt_that_is_switched_off_is_not_there(missing):
    made = prompts(**{missing: False})
    assert (
        made(torch.rand(1, 7, 4, 4)).shape[1]
        == made.channels
        == (2 if missing == "sparsity" else 4)
    )


def test_without_any_prompt_nothing_is_added():
    made = prompts(universal=False, distribution=False, sparsity=False)
    assert made(torch.rand(2, 7, 3, 5)).shape == (2, 0, 3, 5)


@pytest.mark.parametrize("size", [(2, 2), (3, 5), (9, 9)])
def test_prompts_fit_maps_of_any_size_and_all_their_values_learn(size):
    made = prompts(size=4)
    given = made(torch.rand(1, 7, *size))
    assert given.shape[2:] == size
    given[:, :2].sum().backward()
    assert made.universal.grad.ne(0).all()
    assert made.sites.grad[1].ne(0).all()
    assert not made.sites.grad[[0, 2]].any()


def test_attention_starts_silent_and_both_kinds_add_up():
    maps = torch.rand(2, 8, 4, 4)
    for kind, times in (("none", 1), ("spatial", 1), ("channel", 1), ("dual", 2)):
        torch.testing.assert_close(DualAttention(8, kind, "distance")(maps), times * maps)


def test_spatial_attention_takes_up_values_by_softmax_over_places():
    torch.manual_seed(0)
    attention = SpatialAttention(8).eval()
    attention.strength.data.fill_(0.5)
    maps = torch.rand(1, 8, 2, 3)
    question, answer, value = (
        each(maps)[0].flatten(1) for each in (attention.question, attention.answer, attention.value)
    )
    expected = maps.clone()
    for i in range(6):
        scores = torch.stack([question[:, i] @ answer[:, j] for j in range(6)]).softmax(0)
        taken = sum(scores[j] * value[:, j] for j in range(6))
        expected[0, :, i // 3, i % 3] += 0.5 * taken
    torch.testing.assert_close(attention(maps), expected)


@pytest.mark.parametrize("weights", ["distance", "likeness"])
def test_channel_attention_takes_up_channels_by_softmax_over_their_products(weights):
    attention = ChannelAttention(weights)
    attention.strength.data.fill_(0.5)
    maps = torch.rand(1, 3, 2, 2)
    flat = maps[0].flatten(1)
    expected = maps.clone()
    for c in range(3):
        scores = torch.stack([flat[c] @ flat[d] for d in range(3)])
        scores = (scores.max() - scores if weights == "distance" else scores).softmax(0)
        expected[0, c] += 0.5 * sum(scores[d] * maps[0, d] for d in range(3))
    torch.testing.assert_close(attention(maps), expected)


def test_a_residual_gate_starts_at_one_and_a_product_gate_does_not():
    maps, context = torch.rand(2, 4, 8, 8), torch.rand(2, 6, 2, 2)
    assert torch.equal(ContextGate(6, 4, 4, "residual")(maps, context), maps)
    product = ContextGate(6, 4, 4, "product").eval()
    factors = product(maps, context) / maps
    torch.testing.assert_close(factors, factors[:, :, :1, :1].expand_as(factors))
    assert not torch.allclose(factors, torch.ones_like(factors))


def test_the_second_decoder_starts_as_a_copy_that_shares_nothing():
    net = small().eval()
    first, second = net.both(torch.rand(1, 1, 32, 32))
    torch.testing.assert_close(first, second)
    net.second.head.weight.data.zero_()
    assert net.head.weight.any()


def test_a_second_decoder_of_its_own_start_disagrees_from_the_beginning():
    first, second = small(second="own").eval().both(torch.rand(1, 1, 32, 32))
    assert not torch.allclose(first, second)


def test_only_the_main_decoder_is_gated():
    net = small("product").eval()
    first, second = net.both(torch.rand(1, 1, 32, 32))
    assert not torch.allclose(first, second)


def test_without_prompts_the_network_is_as_it_was():
    torch.manual_seed(0)
    plain = NETWORKS["unet"](channels=1, classes=2, width=2)
    names = set(plain.state_dict())
    images = torch.rand(1, 1, 32, 32)
    before = plain.eval()(images)
    changes = {"attention": "dual", "channel_weights": "distance", "gate": "residual"}
    net = PromptedSegmenter(plain, prompts=None, second=False, **changes).eval()
    assert set(net.state_dict()) == names
    assert torch.equal(net(images), before)


def test_other_prompts_give_other_predictions():
    net, images = small().eval(), torch.rand(1, 1, 32, 32)
    first = net(images)
    net.prompts.place.copy_(torch.eye(3)[0])
    assert not torch.equal(net(images), first)
