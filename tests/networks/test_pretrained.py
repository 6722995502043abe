import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from polyclinic.networks.fcn import FCN
from polyclinic.networks.pretrained import PretrainedError, load_pretrained
from polyclinic.networks.pvt import PVTFPN
from polyclinic.networks.resnet_fpn import ResNetFPN
from polyclinic.networks.unet import UNet
from tests.networks.plain_pvt import random_checkpoint


@pytest.fixture
def small():
    torch.manual_seed(0)
    return UNet(channels=1, classes=2, width=2)


def saved(path, tensors):
    save_file({name: each.contiguous() for name, each in tensors.items()}, path)
    return path


def other(net, seed=9):
    """Tensors of the same names and shapes with other values."""
    rng = torch.Generator().manual_seed(seed)
    return {n: torch.rand(each.shape, generator=rng) for n, each in net.state_dict().items()}


def holds(net, tensors):
    return all(torch.equal(each, tensors[name]) for name, each in net.state_dict().items())


def test_a_public_transformer_becomes_the_encoder(tmp_path):
    checkpoint = random_checkpoint()
    net = PVTFPN(channels=3, classes=2)
    decoder = {name: each.clone() for name, each in net.decoder.state_dict().items()}
    match = load_pretrained(net, saved(tmp_path / "pvt_v2_b0.safetensors", checkpoint))
    assert match.place == "encoder"
    assert set(match.loaded) == set(net.encoder.state_dict())
    assert (match.missing, match.shapes) == ((), ())
    assert set(match.unused) == {"head.weight", "head.bias"}
    keys, values = checkpoint["block3.0.attn.kv.bias"].chunk(2)
    state = net.state_dict()
    assert torch.equal(state["encoder.block3.0.attn.k.bias"], keys)
    assert torch.equal(state["encoder.block3.0.attn.v.bias"], values)
    assert torch.equal(state["encoder.norm4.weight"], checkpoint["norm4.weight"])
    assert holds(net.decoder, decoder)
    told = str(match)
    wanted = len(match.loaded)
    assert told.startswith(f"pvt_v2_b0.safetensors: {wanted} of {wanted} tensors of the encoder")
    assert f"not used: {', '.join(match.unused)}" in told
    assert "not in the file" not in told


def test_another_number_of_channels_is_told_with_both_shapes(tmp_path):
    net = PVTFPN(channels=1, classes=2)
    first = net.encoder.state_dict()["patch_embed1.proj.weight"].clone()
    match = load_pretrained(net, saved(tmp_path / "b0.safetensors", random_checkpoint()))
    assert match.shapes == ("patch_embed1.proj.weight (32×3×7×7 in the file, 32×1×7×7 here)",)
    assert torch.equal(net.encoder.state_dict()["patch_embed1.proj.weight"], first)
    assert f"{len(match.loaded)} of {len(match.loaded) + 1} tensors" in str(match)
    assert match.shapes[0] in str(match)


@pytest.mark.parametrize("network", [ResNetFPN, FCN])
def test_counters_of_public_checkpoints_are_passed_over(tmp_path, network):
    net = network(channels=3, classes=2, width=2)
    tensors = other(net.encoder)
    counters = {
        name.replace("running_mean", "num_batches_tracked"): torch.tensor(7)
        for name in tensors
        if name.endswith("running_mean")
    }
    assert counters
    match = load_pretrained(net, saved(tmp_path / "a.safetensors", tensors | counters))
    assert holds(net.encoder, tensors)
    assert match.unused == ()


def test_a_whole_network_is_taken_up_whole(tmp_path, small):
    tensors = other(small)
    match = load_pretrained(small, saved(tmp_path / "whole.safetensors", tensors))
    assert (match.place, match.missing, match.unused) == ("network", (), ())
    assert holds(small, tensors)


def test_the_model_of_an_earlier_run_is_taken_up(tmp_path, small):
    from polyclinic.engine.tensors import save_tensors
    from polyclinic.federation.weights import nested

    tensors = other(small)
    file = tmp_path / "server.safetensors"
    save_tensors(file, nested(weights=tensors, memory={"rate": torch.ones(1)}), {})
    match = load_pretrained(small, file)
    assert match.place == "network"
    assert holds(small, tensors)


def test_prefixes_are_seen_through(tmp_path, small):
    tensors = other(small.encoder)
    named = {f"backbone.{name}": each for name, each in tensors.items()}
    file = saved(tmp_path / "a.safetensors", named | {"fc.weight": torch.ones(2)})
    match = load_pretrained(small, file)
    assert match.place == "encoder"
    assert holds(small.encoder, tensors)


def test_what_a_file_lacks_keeps_its_values_and_is_told(tmp_path, small):
    before = {name: each.clone() for name, each in small.state_dict().items()}
    tensors = {n: each for n, each in other(small).items() if not n.startswith("decoder.")}
    match = load_pretrained(small, saved(tmp_path / "part.safetensors", tensors))
    assert all(name.startswith("decoder.") for name in match.missing)
    after = small.state_dict()
    assert all(torch.equal(after[name], before[name]) for name in match.missing)
    assert all(torch.equal(after[name], tensors[name]) for name in match.loaded)
    assert f"and {len(match.missing) - 4} more" in str(match)


def test_a_file_that_fits_nowhere_is_refused_with_the_nearest_name(tmp_path, small):
    file = saved(
        tmp_path / "x.safetensors", {"encoder.level.0.conv1.weight": torch.ones(2, 1, 3, 3)}
    )
    with pytest.raises(
        PretrainedError,
        match=r"x.safetensors fits network 'unet': it names encoder.level.0.conv1.weight, "
        r"and the nearest name here is encoder.levels.0.conv1.weight",
    ):
        load_pretrained(small, file)


def test_names_that_resemble_nothing_are_refused_with_an_example(tmp_path, small):
    file = saved(tmp_path / "x.safetensors", {"ÄÖÜ": torch.ones(2)})
    with pytest.raises(PretrainedError, match=r"it names ÄÖÜ, and the names here are like \w+"):
        load_pretrained(small, file)


def test_another_width_is_told_apart_from_another_network(tmp_path, small):
    file = saved(tmp_path / "x.safetensors", other(UNet(channels=3, classes=3, width=5)))
    with pytest.raises(PretrainedError, match=r"all shapes differ, such as .*is the width another"):
        load_pretrained(small, file)


def test_a_file_without_tensors_is_refused(tmp_path, small):
    with pytest.raises(PretrainedError, match="it holds no named tensors"):
        load_pretrained(small, saved(tmp_path / "x.safetensors", {}))


class Trap:
    """What would run code where a file is read carelessly."""

    def __reduce__(self):
        return (print, ("never",))


def test_files_that_would_run_code_are_refused(tmp_path, small, capsys):
    file = tmp_path / "x.safetensors"
    torch.save({"a": Trap()}, file)
    with pytest.raises(PretrainedError, match=r"is not a .safetensors file, the only kind"):
        load_pretrained(small, file)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("content", [b"", b"nonsense" * 9])
def test_files_of_something_else_are_refused(tmp_path, small, content):
    file = tmp_path / "x.pth"
    file.write_bytes(content)
    with pytest.raises(PretrainedError, match=r"is not a .safetensors file, the only kind"):
        load_pretrained(small, file)


@pytest.mark.parametrize(
    "odd", [torch.full((2,), torch.nan), torch.ones(2, dtype=torch.int8), torch.ones(2) * 1j]
)
def test_numbers_that_are_no_weights_are_refused(tmp_path, small, odd):
    with pytest.raises(PretrainedError, match=r"odd is not made of finite real numbers"):
        load_pretrained(small, saved(tmp_path / "x.safetensors", other(small) | {"odd": odd}))


def test_a_missing_file_is_told_with_its_neighbour(tmp_path, small):
    saved(tmp_path / "pvt_v2_b0.safetensors", other(small))
    with pytest.raises(
        PretrainedError, match=r"no file of weights .*did you mean \"pvt_v2_b0.safetensors"
    ):
        load_pretrained(small, tmp_path / "pvt_v2_bo.safetensors")
    with pytest.raises(PretrainedError, match=r"no file of weights .*a.safetensors$"):
        load_pretrained(small, tmp_path / "elsewhere" / "a.safetensors")


@pytest.mark.parametrize(
    ("network", "pattern", "tensors"),
    [(ResNetFPN, "resnet18-*", 100), (PVTFPN, "pvt_v2_b0-*", 192)],
)
def test_published_weights_fill_the_whole_encoder(network, pattern, tensors):
    if not os.environ.get("POLYCLINIC_WEIGHTS"):
        pytest.skip("POLYCLINIC_WEIGHTS names no folder of weights")
    (file,) = Path(os.environ["POLYCLINIC_WEIGHTS"]).glob(pattern)
    match = load_pretrained(network(channels=3, classes=2), file)
    assert (match.place, len(match.loaded), match.missing, match.shapes) == (
        "encoder",
        tensors,
        (),
        (),
    )
