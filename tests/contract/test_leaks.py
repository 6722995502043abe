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
    across = torch.cat((tensors["first"][-4:], tensors["second"][:4]))
    assert owner(tensors, marks([across])) == "several tensors in a row"
