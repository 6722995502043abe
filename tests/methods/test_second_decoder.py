import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from polyclinic.methods.second_decoder import prompt_affinity, shares_of_decoders


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def prompts_of(seed, sites, values=7):
    return torch.randn(sites, values, generator=rng(seed))


@given(st.integers(0, 500), st.integers(1, 6))
def test_affinities_are_one_with_oneself_symmetric_and_never_below_nought(seed, sites):
    affinity = prompt_affinity(prompts_of(seed, sites))
    assert affinity.diagonal().eq(1).all()
    assert torch.equal(affinity, affinity.T)
    assert affinity.min() >= 0
    assert affinity.max() <= 1


def test_an_affinity_is_the_cosine_or_nought():
    prompts = prompts_of(1, 4)
    affinity = prompt_affinity(prompts)
    for i in range(4):
        for j in range(4):
            cosine = torch.cosine_similarity(prompts[i].double(), prompts[j].double(), dim=0)
            assert affinity[i, j] == pytest.approx(max(0.0, float(cosine)))


def test_a_prompt_of_noughts_is_like_itself_alone():
    affinity = prompt_affinity(torch.tensor([[0.0, 0.0], [1.0, 2.0]]))
    assert torch.equal(affinity, torch.eye(2, dtype=torch.float64))


@given(
    st.sampled_from(["aggregated", "nearest", "cyclic", "random"]),
    st.integers(0, 200),
    st.integers(1, 6),
    st.data(),
)
def test_shares_sum_to_one_and_are_never_below_nought(strategy, seed, sites, data):
    present = data.draw(st.lists(st.integers(0, sites - 1), min_size=1, unique=True))
    shares = shares_of_decoders(
        strategy, prompt_affinity(prompts_of(seed, sites)), sorted(present), rng()
    )
    assert shares.shape == (sites, len(present))
    assert shares.min() >= 0
    torch.testing.assert_close(shares.sum(1), torch.ones(sites, dtype=torch.float64))


@pytest.mark.parametrize("strategy", ["nearest", "cyclic", "random"])
@pytest.mark.parametrize("seed", range(5))
def test_who_gets_one_decoder_gets_another_sites(strategy, seed):
    shares = shares_of_decoders(strategy, prompt_affinity(prompts_of(seed, 5)), range(5), rng(seed))
    assert shares.max(1).values.eq(1).all()
    assert not shares.diagonal().any()


@pytest.mark.parametrize("strategy", ["cyclic", "random"])
def test_in_a_circle_every_decoder_goes_to_exactly_one_site(strategy):
    shares = shares_of_decoders(strategy, torch.eye(5), range(5), rng())
    assert shares.sum(0).eq(1).all()


def test_the_fixed_order_gives_the_decoder_of_the_site_before():
    shares = shares_of_decoders("cyclic", torch.eye(4), range(4), rng())
    assert shares.argmax(1).tolist() == [3, 0, 1, 2]
    without_third = shares_of_decoders("cyclic", torch.eye(4), [0, 1, 3], rng())
    assert [[0, 1, 3][i] for i in without_third.argmax(1).tolist()] == [3, 0, 1, 1]


def test_another_draw_gives_another_order():
    orders = {
        tuple(shares_of_decoders("random", torch.eye(5), range(5), rng(s)).argmax(1).tolist())
        for s in range(6)
    }
    assert len(orders) > 1


def test_the_nearest_is_the_likest_other():
    affinity = torch.tensor([[1.0, 0.2, 0.7], [0.2, 1.0, 0.1], [0.7, 0.1, 1.0]])
    shares = shares_of_decoders("nearest", affinity, range(3), rng())
    assert shares.argmax(1).tolist() == [2, 0, 0]


def test_aggregated_shares_are_affinities_divided_by_their_sum():
    affinity = torch.tensor([[1.0, 0.0, 1.0], [0.0, 1.0, 0.25], [1.0, 0.25, 1.0]])
    shares = shares_of_decoders("aggregated", affinity, range(3), rng())
    torch.testing.assert_close(shares[1], torch.tensor([0.0, 0.8, 0.2]))


def test_who_is_absent_and_like_nobody_gets_the_mean():
    shares = shares_of_decoders("aggregated", torch.eye(3), [0, 1], rng())
    torch.testing.assert_close(shares[2], torch.tensor([0.5, 0.5]))
    torch.testing.assert_close(shares[0], torch.tensor([1.0, 0.0]))
