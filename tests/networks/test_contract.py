"""What every network must do by standing in the table."""

import copy
import inspect

import pytest
import torch
from torch import nn

from polyclinic.networks import NETWORKS
from polyclinic.networks.contract import ImageError, Segmenter, likeliest
from polyclinic.networks.parts import everything, statistics

UNET = (16, [64, 32, 16, 8, 4], [8, 16, 32, 64])
PYRAMID = (32, [16, 8, 4, 2], [2, 4, 8, 16, 16])
SHAPES = {
    "unet": UNET,
    "classic_unet": UNET,
    "unet_plus_plus": UNET,
    "res_unet": (8, [64, 32, 16, 8], [16, 32, 64]),
    "fcn": (32, [32, 16, 8, 4, 2], [2, 4, 8]),
    "resnet_fpn": PYRAMID,
    "pvt_fpn": PYRAMID,
}
"""Network → its divisor, and the sides of the encoder's and decoder's maps of 64 × 64 pixels."""


def small(name, channels=1, classes=2):
    """A narrow version where the network has a width."""
    has_width = "width" in inspect.signature(NETWORKS[name]).parameters
    return NETWORKS[name](channels=channels, classes=classes, **({"width": 2} if has_width else {}))


@pytest.fixture(params=NETWORKS)
def name(request):
    return request.param


@pytest.fixture
def net(name):
    torch.manual_seed(0)
    return small(name)


@pytest.mark.parametrize(("channels", "classes"), [(1, 2), (3, 3), (4, 1)])
@pytest.mark.parametrize("times", [(1, 1), (2, 3)])
def test_logits_have_one_map_per_class_in_the_size_of_the_images(name, channels, classes, times):
    net = small(name, channels, classes)
    size = [net.divisor * each for each in times]
    assert net(torch.rand(2, channels, *size)).shape == (2, classes, *size)


def test_a_network_knows_its_channels_classes_divisor_and_name(name):
    net = small(name, 3, 4)
    assert (net.channels, net.classes, net.divisor, net.name) == (3, 4, SHAPES[name][0], name)


def test_the_divisor_is_the_smallest_that_works(name, monkeypatch):
    monkeypatch.setattr(Segmenter, "check", lambda net, images: None)
    net = small(name).eval()

    def works(side):
        try:
            return net(torch.rand(1, 1, side, side)).shape[2:] == (side, side)
        except RuntimeError:
            return False

    with torch.no_grad():
        working = [side for side in range(4, 68, 4) if works(side)]
    assert working == list(range(NETWORKS[name].divisor, 68, NETWORKS[name].divisor))


def test_gradients_reach_every_parameter(net):
    (net(torch.rand(4, 1, 64, 64)) ** 2).sum().backward()
    for name, parameter in net.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        # Offsets before a norm layer have no effect, so theirs may vanish.
        assert parameter.ndim == 1 or parameter.grad.any(), name


def test_no_sub_module_hides_in_a_list_or_dictionary(net):
    for path, module in net.named_modules():
        for value in vars(module).values():
            inside = value.values() if isinstance(value, dict) else value
            if isinstance(inside, list | tuple):
                assert not any(isinstance(item, nn.Module) for item in inside), path


def test_the_sub_modules_are_disjoint_parts_that_cover_everything(net):
    parts = net.parts()
    pieces = [parts[child] for child, _ in net.named_children()]
    assert {"encoder", "decoder", "head", "norms"} <= parts.keys()
    assert sum(map(len, pieces)) == len(everything(net))
    assert frozenset().union(*pieces) == everything(net)
    assert all(names <= everything(net) for names in parts.values())


def test_maps_come_finest_first_from_the_encoder_and_coarsest_first_from_the_decoder(net):
    features = net.encoder(torch.rand(2, 1, 64, 64))
    maps = net.decoder(features)
    sides = [[value.shape[-1] for value in values] for values in (features, maps)]
    assert sides == [*SHAPES[net.name][1:]]
    assert net.head(maps[-1]).shape == (2, 2, 64, 64)


@pytest.mark.parametrize("channels", [1, 3])
def test_every_map_is_channels_last_whatever_the_layout_of_the_images(name, channels):
    net = small(name, channels)
    kept = {}
    layers = (nn.Conv2d, nn.ConvTranspose2d, nn.BatchNorm2d, nn.GroupNorm, nn.MaxPool2d)

    def watch(path):
        def look(_module, _inputs, output):
            if output.shape[1] > 1:
                kept[path] = output.is_contiguous(memory_format=torch.channels_last)

        return look

    for path, module in net.named_modules():
        if isinstance(module, (*layers, Segmenter)):
            module.register_forward_hook(watch(path))
    net(torch.rand(2, channels, 64, 64))
    assert len(kept) > 20
    assert [path for path, right in kept.items() if not right] == []


def test_the_layout_of_images_and_weights_does_not_change_the_logits(net):
    images = torch.rand(2, 1, 32, 32)
    net.eval()
    expected = net(images)
    other = copy.deepcopy(net).to(memory_format=torch.channels_last)
    actual = other(images.to(memory_format=torch.channels_last))
    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("times", [(0.875, 1), (1, 2.5), (0.5, 0.5), (0, 1)])
def test_sizes_that_do_not_divide_are_refused(net, times):
    with pytest.raises(ImageError, match=f"not divisible by {net.divisor}"):
        net(torch.rand(1, 1, *(int(net.divisor * each) for each in times)))


def test_everything_wrong_about_images_is_said_at_once(net):
    with pytest.raises(ImageError) as caught:
        net(torch.rand(1, 3, 100, 7))
    message = str(caught.value)
    assert net.name in message
    assert "3 channel(s), it takes 1" in message
    divisor = net.divisor
    assert f"height 100 is not divisible by {divisor}, nearest 96 or {96 + divisor}" in message
    assert f"width 7 is not divisible by {divisor}, nearest {divisor}" in message


def test_a_single_image_without_batch_is_refused(net):
    with pytest.raises(ImageError, match="got 3 dimensions"):
        net(torch.rand(1, 32, 32))


def test_the_seed_decides_the_weights(name):
    nets = []
    for seed in (7, 7, 8):
        torch.manual_seed(seed)
        nets.append(small(name).state_dict())
    first, same, other = nets
    assert all(torch.equal(first[key], same[key]) for key in first)
    assert any(not torch.equal(first[key], other[key]) for key in first)


def test_the_state_dict_holds_no_counters_and_loads_from_a_plain_dictionary(net):
    state = {key: value.clone() for key, value in net.state_dict().items()}
    assert all(value.is_floating_point() for value in state.values())
    other = small(net.name)
    other.load_state_dict(state)
    assert all(torch.equal(value, state[key]) for key, value in other.state_dict().items())


def test_evaluating_changes_nothing_and_training_moves_the_statistics(net):
    images = torch.rand(2, 1, 32, 32)
    before = copy.deepcopy(net.state_dict())
    net.eval()
    assert torch.equal(net(images), net(images))
    assert all(torch.equal(value, before[key]) for key, value in net.state_dict().items())
    net.train()
    net(images)
    moved = {key for key, value in net.state_dict().items() if not torch.equal(value, before[key])}
    assert moved == statistics(net)


@pytest.mark.parametrize("precision", [torch.float64, torch.bfloat16])
def test_other_precisions_work(net, precision):
    if precision is torch.float64:
        logits = net.double()(torch.rand(2, 1, 32, 32, dtype=precision))
        assert logits.dtype is precision
    else:
        with torch.autocast("cpu", dtype=precision):
            logits = net(torch.rand(2, 1, 32, 32))
        # Enlargement by the head is done in float32.
        assert logits.dtype in (precision, torch.float32)
    logits.sum().backward()


def test_settings_of_a_network_are_annotated_keywords_with_defaults(name):
    parameters = inspect.signature(NETWORKS[name]).parameters
    assert all(item.kind is item.KEYWORD_ONLY for item in parameters.values())
    for item in parameters.values():
        assert item.annotation is not item.empty
        assert (item.name in ("channels", "classes")) == (item.default is item.empty)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_the_likeliest_class_of_a_pixel_is_the_first_with_the_highest_score(layout):
    scores = torch.randint(3, (2, 4, 5, 6), generator=torch.Generator().manual_seed(0)).float()
    found = likeliest(scores.contiguous(memory_format=layout))
    highest = scores.amax(1, keepdim=True)
    expected = [[row.tolist().index(1) for row in plane] for plane in _rows(scores == highest)]
    assert found.dtype == torch.uint8
    assert found.flatten(1).tolist() == expected


def _rows(maps):
    """Every pixel's classes, image by image."""
    return maps.flatten(2).transpose(1, 2).int()
