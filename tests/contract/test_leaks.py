import torch

from polyclinic.contract.leaks import leaked, lengths, marks, owner, without


def drawn(*shape, seed=0):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


def leak(leaving, private):
    return len(leaked(marks([leaving], lengths([private])), marks([private]))) > 0


def test_a_slice_of_eight_values_is_found_wherever_it_lies():
    private, other = drawn(5, 8), drawn(100, seed=1)
    hidden = torch.cat((other[:37], private.flatten()[11:19], other[37:]))
    assert leak(hidden, private)
    assert leak(hidden.double().view(-1, 2), private)
    assert not leak(torch.cat((other[:37], private.flatten()[11:18], other[37:])), private)
    assert not leak(other, private)


def test_short_tensors_count_as_a_whole():
    assert leak(torch.tensor([0.3, 0.7]), torch.tensor([0.3, 0.7]))
    assert leak(torch.cat((drawn(20), torch.tensor([0.3, 0.7]))), torch.tensor([0.3, 0.7]))
    assert not leak(torch.tensor([0.3, 0.7]), torch.tensor([0.3, 0.7, 0.1]))
    assert not leak(drawn(20), torch.tensor([0.3, 0.7]))


def test_what_tells_nothing_is_no_leak():
    for nothing in (torch.zeros(40), torch.ones(3), torch.tensor([0.0, 1.0, 0.0]), torch.empty(0)):
        assert not leak(nothing, nothing)


def test_what_is_public_too_is_no_secret():
    private = drawn(40)
    found = leaked(marks([private]), marks([private]))
    assert len(without(found, marks([private[:30]]))) == 10
    assert not len(without(found, marks([private])))


def test_the_owner_of_a_slice_is_named():
    tensors = {"first": drawn(20), "second": drawn(20, seed=1)}
    assert owner(tensors, marks([tensors["second"][4:12]])) == "second"
    assert owner(tensors, marks([torch.tensor([*tensors["first"][4:7]])])) == "first"


def test_no_slice_crosses_the_ends_of_tensors():
    first, second = drawn(20), drawn(20, seed=1)
    across = marks([torch.cat((first[-4:], second[:4]))])
    assert not len(leaked(across, marks([first, second])))


def test_of_zeros_and_ones_only_long_slices_tell_something():
    mask = (drawn(32, 32) > 0.5).double()
    assert leak(torch.cat((drawn(9), mask[4:6].flatten().double())), mask)
    assert not leak(mask.flatten()[:63], mask)
    assert not leak(torch.cat((torch.ones(16), torch.zeros(32))), mask)


def test_a_number_stands_for_one_slice():
    values = drawn(500)
    assert len(set(marks([values]).tolist())) == 493
    windows = values.double().unfold(0, 3, 1)
    assert len(set(marks([values], [3]).tolist())) == 493 + len(windows)
