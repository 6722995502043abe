import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from polyclinic.networks.dropout import Dropout


def thinned(p, values, seed=0):
    torch.manual_seed(seed)
    return Dropout(p)(values)


@pytest.mark.parametrize("p", [0.05, 0.1, 0.2, 0.3, 0.5, 0.999])
def test_the_share_dropped_is_p_rounded_to_256ths_and_the_mean_is_kept(p):
    ones = torch.ones(1 << 20, dtype=torch.float64)
    output = thinned(p, ones)
    dropped = min(round(p * 256), 255) / 256
    noise = (dropped * (1 - dropped) / ones.numel()) ** 0.5
    assert abs((output == 0).double().mean() - dropped) < 5 * noise
    assert output.max() == pytest.approx(1 / (1 - dropped), rel=1e-12)
    assert abs(dropped - p) <= 1 / 256


def test_all_eight_bytes_of_a_word_are_dropped_alike():
    dropped = (thinned(0.5, torch.ones(1 << 20)) == 0).view(-1, 8).float().mean(0)
    assert torch.all((dropped - 0.5).abs() < 0.01)


def test_neighbours_are_dropped_independently():
    kept = (thinned(0.5, torch.ones(1 << 20)) > 0).double()
    for distance in (1, 7, 8, 16):
        both = (kept[:-distance] * kept[distance:]).mean()
        assert abs(both - 0.25) < 0.005


def test_the_seed_decides_and_draws_go_on():
    values = torch.ones(1000)
    assert torch.equal(thinned(0.3, values, seed=4), thinned(0.3, values, seed=4))
    assert not torch.equal(thinned(0.3, values, seed=4), thinned(0.3, values, seed=5))
    torch.manual_seed(4)
    layer = Dropout(0.3)
    assert not torch.equal(layer(values), layer(values))


def test_evaluating_and_zero_probability_give_the_values_themselves():
    values = torch.randn(10)
    assert Dropout(0.5).eval()(values) is values
    assert Dropout(0.0)(values) is values


@settings(deadline=None, max_examples=30)
@given(
    shape=st.lists(st.integers(0, 5), min_size=0, max_size=4),
    last=st.booleans(),
    precision=st.sampled_from([torch.float32, torch.float64, torch.bfloat16, torch.float16]),
)
def test_any_shape_layout_and_precision_is_kept(shape, last, precision):
    values = torch.ones(shape, dtype=precision)
    if last and len(shape) == 4:
        values = values.to(memory_format=torch.channels_last)
    output = thinned(0.5, values)
    assert output.shape == values.shape
    assert output.dtype is precision
    assert set(output.flatten().tolist()) <= {0.0, 2.0}
    if values.numel() and len(shape) == 4 and last:
        assert output.is_contiguous(memory_format=torch.channels_last)


def test_views_with_gaps_are_dropped_like_others():
    values = torch.ones(64, 64)[::2, 1::3]
    output = thinned(0.5, values)
    assert output.shape == values.shape
    assert set(output.flatten().tolist()) == {0.0, 2.0}


def test_the_gradient_passes_where_the_value_passed():
    values = torch.randn(4, 3, 8, 8).to(memory_format=torch.channels_last).requires_grad_()
    output = thinned(0.25, values)
    toward = torch.randn_like(output)
    output.backward(toward)
    torch.testing.assert_close(values.grad, toward * (output / values).detach())


def test_first_and_second_derivatives_are_right():
    def function(values):
        return thinned(0.5, values) ** 3

    values = torch.randn(20, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(function, values)
    assert torch.autograd.gradgradcheck(function, values)


def test_only_bytes_are_kept_for_the_backward_pass():
    values = torch.ones(1000, requires_grad=True)
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(
        lambda saved: kept.append(saved) or saved, lambda saved: saved
    ):
        thinned(0.5, values)
    assert [saved.dtype for saved in kept] == [torch.uint8]


def test_other_devices_use_their_own_dropout():
    output = Dropout(0.5)(torch.empty(3, 4, device="meta"))
    assert output.device.type == "meta"
    assert output.shape == (3, 4)


@pytest.mark.parametrize("p", [-0.1, 1.0, 2.0])
def test_impossible_probabilities_are_refused(p):
    with pytest.raises(ValueError, match="outside 0 ≤ p < 1"):
        Dropout(p)
