import pytest
import torch
from torch import nn

from polyclinic.networks import NETWORKS
from polyclinic.networks.widening import smallest_maps, widen


# The residual U-Net joins its two maps before any convolution reads the deepest.
@pytest.fixture(params=[name for name in NETWORKS if name != "res_unet"])
def net(request):
    torch.manual_seed(0)
    return NETWORKS[request.param](channels=3, classes=2, width=2)


def with_more(features, extra):
    deepest = features[-1]
    added = torch.zeros(len(deepest), extra, *deepest.shape[2:])
    return [*features[:-1], torch.cat((deepest, added), 1)]


def test_the_decoder_takes_more_channels_and_noughts_in_them_change_nothing(net):
    net.eval()
    features = net.encoder(torch.rand(2, 3, 64, 64))
    before = net.decoder(features)[-1]
    widen(net, 5)
    torch.testing.assert_close(net.decoder(with_more(features, 5))[-1], before)
    with pytest.raises(RuntimeError):
        net.decoder(features)


def test_the_added_channels_count(net):
    net.eval()
    widen(net, 1)
    features = with_more(net.encoder(torch.rand(1, 3, 64, 64)), 1)
    before = net.decoder(features)[0]
    features[-1][:, -1] = 1.0
    assert not torch.allclose(net.decoder(features)[0], before)


def test_looking_at_the_maps_changes_nothing(net):
    net.train()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    state = torch.random.get_rng_state()
    features, maps = smallest_maps(net)
    assert net.head(maps[-1]).shape[2:] == (net.divisor, net.divisor)
    assert max(features[-1].shape[2:]) <= 2
    assert net.training
    assert torch.equal(state, torch.random.get_rng_state())
    assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())


def test_a_decoder_that_reads_the_deepest_map_twice_is_refused(net):
    class Twice(nn.Module):
        def __init__(self, channels):
            super().__init__()
            self.one, self.other = nn.Conv2d(channels, 2, 1), nn.Conv2d(channels, 2, 1)

        def forward(self, features):
            return [self.one(features[-1]) + self.other(features[-1])]

    net.decoder = Twice(smallest_maps(net)[0][-1].shape[1])
    with pytest.raises(ValueError, match=f"'{net.name}' cannot be widened: 2 of its conv"):
        widen(net, 1)


def test_a_decoder_none_of_whose_convolutions_reads_the_deepest_map_is_refused():
    net = NETWORKS["res_unet"](channels=1, classes=2, width=2)
    with pytest.raises(ValueError, match="'res_unet' cannot be widened: 0 of its convolutions"):
        widen(net, 1)


def test_a_convolution_without_offset_stays_without():
    net = NETWORKS["unet"](channels=1, classes=2, width=2)
    old = net.decoder.levels[0].narrow
    net.decoder.levels[0].narrow = nn.Conv2d(old.in_channels, old.out_channels, 1, bias=False)
    widen(net, 3)
    assert net.decoder.levels[0].narrow.bias is None
    assert net.decoder.levels[0].narrow.in_channels == old.in_channels + 3
