import pytest
import torch
from torch.nn import functional

from polyclinic.networks.blocks import Halving


@pytest.mark.parametrize("inputs", [1, 2, 4, 6, 17])
def test_it_is_a_convolution_with_a_stride_also_backward(inputs):
    torch.manual_seed(0)
    layer = Halving(inputs, 4, bias=True)
    maps = torch.rand(3, inputs, 16, 24)
    ours = maps.to(memory_format=torch.channels_last).requires_grad_()
    theirs = maps.double().requires_grad_()
    weight, bias = (each.detach().double().requires_grad_() for each in layer.parameters())
    mine = layer(ours)
    other = functional.conv2d(theirs, weight, bias, stride=2)
    torch.testing.assert_close(mine.double(), other, atol=1e-5, rtol=0)
    assert mine.is_contiguous(memory_format=torch.channels_last)
    for each in (mine, other):
        (each**2).sum().backward()
    for got, expected in ((ours, theirs), (layer.weight, weight), (layer.bias, bias)):
        torch.testing.assert_close(got.grad.double(), expected.grad, atol=1e-3, rtol=1e-4)
