import pytest
import torch

from polyclinic.networks.parts import everything, part
from polyclinic.networks.pvt import PVT, PVTFPN, DropPath
from tests.networks.plain_pvt import plain_features, random_checkpoint


def count(module):
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.fixture(scope="module")
def net():
    return PVTFPN(channels=3, classes=1)


def test_every_module_has_the_papers_size(net):
    assert count(net.encoder) == 3_409_760
    assert count(net.decoder) == 1_755_904
    assert count(net) == 5_165_793


@pytest.mark.parametrize(("depth", "millions"), [(8, 14.0), (16, 25.4)], ids=["b1", "b2"])
def test_wider_and_deeper_encoders_have_the_published_size(depth, millions):
    classifier = 512 * 1000 + 1000
    with torch.device("meta"):
        assert round((count(PVT(3, 64, depth)) + classifier) / 1e6, 1) == millions


def test_queries_keys_and_values_are_published_and_have_the_known_size(net):
    state = net.state_dict()
    parts = {name: part(net, name) for name in ("queries", "keys", "values")}
    for names in parts.values():
        assert len(names) == 16
        assert sum(state[name].numel() for name in names) == 193_536
        assert names <= part(net, "encoder")
    assert "encoder.block3.1.attn.q.weight" in parts["queries"]
    assert "encoder.block4.0.attn.k.bias" in parts["keys"]
    assert "encoder.block1.0.attn.v.weight" in parts["values"]
    assert not part(net, "norms")


@pytest.mark.parametrize(
    ("size", "sides"), [(384, [96, 48, 24, 12]), (256, [64, 32, 16, 8]), (32, [8, 4, 2, 1])]
)
def test_maps_have_the_known_shapes(size, sides):
    with torch.device("meta"):
        maps = PVT(3, 32)(torch.empty(2, 3, size, size))
    assert [each.shape for each in maps] == [
        (2, width, side, side) for width, side in zip((32, 64, 160, 256), sides, strict=True)
    ]


def test_a_public_checkpoint_loads_with_all_its_names(net):
    checkpoint = random_checkpoint()
    classifier = {"head.weight", "head.bias"}
    wanted = {name: each for name, each in checkpoint.items() if name not in classifier}
    encoder = PVT(3, 32)
    encoder.load_state_dict(wanted)
    result = encoder.load_state_dict(checkpoint, strict=False)
    assert (result.missing_keys, set(result.unexpected_keys)) == ([], classifier)
    assert set(checkpoint) > classifier, "loading must leave the dictionary as it was"
    attention = encoder.get_submodule("block2.1.attn")
    joint = checkpoint["block2.1.attn.kv.weight"]
    assert torch.equal(attention.k.weight, joint[:64])
    assert torch.equal(attention.v.weight, joint[64:])


@pytest.mark.parametrize("size", [(64, 64), (96, 160)])
def test_maps_are_those_of_the_plain_network(size):
    checkpoint = random_checkpoint(precision=torch.float64)
    encoder = PVT(3, 32).double().eval()
    encoder.load_state_dict(checkpoint, strict=False)
    images = torch.rand(2, 3, *size, dtype=torch.float64)
    ours = encoder(images.to(memory_format=torch.channels_last))
    for mine, other in zip(ours, plain_features(checkpoint, images), strict=True):
        torch.testing.assert_close(mine, other, atol=1e-10, rtol=0)


def test_gradients_are_those_of_the_plain_network():
    checkpoint = random_checkpoint(channels=1, precision=torch.float64)
    leaves = {
        name: each.requires_grad_() for name, each in checkpoint.items() if "head" not in name
    }
    encoder = PVT(1, 32).double().eval()
    encoder.load_state_dict(leaves)
    images = torch.rand(2, 1, 64, 64, dtype=torch.float64)
    for maps in (encoder(images), plain_features(leaves, images)):
        sum((each**2).mean() for each in maps).backward()
    mine = dict(encoder.named_parameters())
    assert leaves.keys() - mine.keys() == {name for name in leaves if ".kv." in name}
    for name, leaf in leaves.items():
        if ".kv." in name:
            halves = [mine[name.replace(".kv.", f".{half}.")].grad for half in "kv"]
            torch.testing.assert_close(torch.cat(halves), leaf.grad, atol=1e-10, rtol=1e-8)
        else:
            torch.testing.assert_close(mine[name].grad, leaf.grad, atol=1e-10, rtol=1e-8)


def test_paths_are_dropped_more_often_with_depth_and_only_while_training():
    encoder = PVT(3, 2)
    drops = [module.p for module in encoder.modules() if isinstance(module, DropPath)]
    assert drops == pytest.approx([0.1 * block / 7 for block in range(8)])
    tokens = torch.rand(3, 4, 4, 2)
    assert DropPath(0.5).eval()(tokens) is tokens


def test_a_dropped_path_is_missing_for_a_whole_image_and_the_mean_stays():
    torch.manual_seed(0)
    dropped = DropPath(0.25)(torch.ones(4000, 2, 2, 3)).flatten(1)
    assert sorted(set(dropped.amin(1).tolist())) == pytest.approx([0.0, 4 / 3])
    assert torch.equal(dropped.amin(1), dropped.amax(1))
    assert dropped.mean().item() == pytest.approx(1, abs=0.03)


def test_queries_can_be_swapped_alone():
    nets = [PVTFPN(channels=1, classes=2, width=2).eval() for _ in range(2)]
    images = torch.rand(1, 1, 64, 64)
    queries = part(nets[0], "queries")
    first, second = (net.state_dict() for net in nets)
    nets[1].load_state_dict({name: (first if name in queries else second)[name] for name in first})
    rest = everything(nets[0]) - queries
    assert all(torch.equal(nets[1].state_dict()[name], second[name]) for name in rest)
    assert nets[1](images).isfinite().all()
