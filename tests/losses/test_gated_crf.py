import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from polyclinic.losses import TensorError, gated_crf
from polyclinic.losses.gated_crf import _window_sums, closeness, shifted_sums
from tests.losses import brute_force
from tests.losses.brute_force import waves

sizes = st.tuples(st.integers(1, 9), st.integers(1, 9))


def sample(seed, classes=2, channels=1, size=(7, 6), batch=2, precision=torch.float64):
    rng = torch.Generator().manual_seed(seed)
    logits = torch.randn(batch, classes, *size, generator=rng, dtype=torch.float64)
    image = torch.rand(batch, channels, *size, generator=rng, dtype=torch.float64)
    mask = torch.rand(batch, *size, generator=rng) < 0.6
    return logits.softmax(1).to(precision).requires_grad_(), image.to(precision), mask


@pytest.mark.parametrize("precision", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("channels", "classes", "loss", "norm"),
    [(3, 2, 1.584947, 0.0138651), (1, 3, 11.034019, 0.0307317)],
)
def test_the_golden_numbers(precision, channels, classes, loss, norm):
    logits, image = waves(classes, channels, 16, 16, precision)
    found = gated_crf(logits.softmax(1), image)
    found.backward()
    assert found.item() == pytest.approx(loss, rel=2e-7, abs=1e-6)
    assert logits.grad.norm().item() == pytest.approx(norm, abs=5e-8)


@settings(max_examples=40)
@given(
    seed=st.integers(0, 9999),
    size=sizes,
    classes=st.integers(1, 3),
    channels=st.integers(1, 3),
    radius=st.integers(0, 5),
    masked=st.booleans(),
    precision=st.sampled_from([torch.float32, torch.float64]),
)
def test_values_and_gradients_are_those_of_the_unfolded_definition(
    seed, size, classes, channels, radius, masked, precision
):
    probabilities, image, mask = sample(seed, classes, channels, size, precision=precision)
    image = image * 0.3  # dark, so that neighbours beyond the image count
    settings = {"radius": radius, "sigma_xy": 3.0, "mask": mask if masked else None}
    ours = gated_crf(probabilities, image, **settings)
    theirs = brute_force.gated_crf(probabilities, image, **settings)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
    found, expected = (torch.autograd.grad(each, probabilities)[0] for each in (ours, theirs))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-7)


def test_gradients_are_right():
    probabilities, image, mask = sample(0)
    assert torch.autograd.gradcheck(lambda p: gated_crf(p, image, 2, mask=mask), probabilities)


@given(seed=st.integers(0, 9999), size=sizes, radius=st.integers(0, 5))
def test_other_devices_way_of_summing_gives_the_same(seed, size, radius):
    values, image, _ = sample(seed, channels=2, size=size)
    near = closeness(radius, 6.0)
    expected = _window_sums(3 * image, near, values)
    torch.testing.assert_close(shifted_sums(3 * image, near, values), expected)


def test_small_similarities_are_as_exact_as_large_ones():
    image = torch.arange(2000.0).sqrt()[None, None, None]
    values = torch.ones(1, 1, 1, 2000)
    near = torch.ones(6, 11)
    found = _window_sums(4 * image, near, values)
    expected = _window_sums(4 * image.double(), near.double(), values.double())
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-37)
    lone = torch.tensor([0.0, 5.0, 1e3, 1e19])[None, None, None]
    neighbours = _window_sums(lone, torch.ones(2, 3), torch.ones(1, 1, 1, 4)).flatten()
    torch.testing.assert_close(neighbours[0].log(), torch.tensor(-25.0))
    assert neighbours[2:].max() < 1e-37


def test_only_probabilities_have_a_gradient():
    probabilities, image, _ = sample(2)
    gated_crf(probabilities, image.requires_grad_()).backward()
    assert image.grad is None
    assert probabilities.grad.any()


@pytest.mark.parametrize("threads", [1, 3])
def test_threads_and_layout_change_nothing_that_matters(threads):
    probabilities, image, _ = sample(3, channels=3, size=(20, 33), batch=5)
    expected = gated_crf(probabilities, image)
    torch.set_num_threads(threads)
    try:
        last = [m.float().to(memory_format=torch.channels_last) for m in (probabilities, image)]
        found = gated_crf(*last)
    finally:
        torch.set_num_threads(1)
    assert found.dtype is torch.float32
    torch.testing.assert_close(found.double(), expected, rtol=1e-6, atol=0)


@pytest.mark.parametrize("precision", [torch.bfloat16, torch.float16])
def test_short_numbers_are_summed_as_longer_ones(precision):
    probabilities, image, _ = sample(4, precision=precision)
    probabilities = probabilities.detach().requires_grad_()
    loss = gated_crf(probabilities, image)
    torch.testing.assert_close(loss, gated_crf(probabilities.float(), image.float()))
    loss.backward()
    assert probabilities.grad.dtype is precision


def test_an_empty_mask_costs_nothing_and_teaches_nothing():
    probabilities, image, mask = sample(5)
    loss = gated_crf(probabilities, image, mask=torch.zeros_like(mask))
    loss.backward()
    assert loss == 0
    assert not probabilities.grad.any()


def test_agreement_costs_only_what_lies_beyond_the_image():
    image = torch.full((1, 1, 8, 8), 0.5)
    alike = torch.zeros(1, 2, 8, 8)
    alike[:, 1] = 1
    assert 0 < gated_crf(alike, image).item() < 1e-3
    assert gated_crf(alike, image, mask=torch.ones(1, 8, 8, dtype=torch.bool)).item() < 1e-6


def test_every_mistake_is_told_at_once():
    probabilities, image, mask = sample(6)
    image[1, 0, 3, 3] = float("nan")
    with pytest.raises(TensorError) as caught:
        gated_crf(probabilities, image, -1, 0.0, mask=mask[0].float())
    for mistake in (
        "image holds NaN or infinite pixels",
        "mask should be boolean, not torch.float32",
        "mask (7×6) and the maps (2×2×7×6) differ in size",
        "radius should be 0 or more, not -1",
        "sigma_xy should be above 0, not 0.0",
    ):
        assert mistake in str(caught.value)
