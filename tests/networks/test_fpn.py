import pytest
import torch
from torch import nn
from torch.nn import functional

from polyclinic.networks.blocks import EnlargingHead
from polyclinic.networks.fpn import FPNDecoder

WIDTHS = (4, 6, 8, 10)


@pytest.fixture
def decoder():
    torch.manual_seed(0)
    return FPNDecoder(WIDTHS).double().eval()


def features(side=16, batch=2):
    return [
        torch.rand(batch, width, side >> level, side >> level, dtype=torch.float64)
        for level, width in enumerate(WIDTHS)
    ]


def plain(decoder, maps):
    """The decoder written out, branch by branch."""
    deepest = decoder.deepest(maps[3])
    levels = [deepest]
    for level, beside in zip(decoder.levels, (maps[2], maps[1], maps[0]), strict=True):
        levels.append(
            level.lateral(beside) + levels[-1].repeat_interleave(2, 2).repeat_interleave(2, 3)
        )
    total = 0
    for branch, each, enlargements in zip(decoder.branches, levels, (3, 2, 1, 0), strict=True):
        value = each
        for step in range(max(1, enlargements)):
            refine = branch[step]
            value = functional.conv2d(value, refine.conv.weight, padding=1)
            groups = value.unflatten(1, (32, 4))
            mean = groups.mean((2, 3, 4), keepdim=True)
            spread = groups.var((2, 3, 4), keepdim=True, correction=0)
            value = ((groups - mean) / (spread + 1e-5).sqrt()).flatten(1, 2)
            value = value * refine.norm.weight[:, None, None] + refine.norm.bias[:, None, None]
            value = value.clamp(min=0)
            if enlargements:
                size = [2 * side for side in value.shape[2:]]
                value = functional.interpolate(value, size, mode="bilinear", align_corners=True)
        total = total + value
    return [*levels, total]


def test_maps_are_those_of_the_plain_decoder(decoder):
    maps = features()
    for mine, other in zip(decoder(maps), plain(decoder, maps), strict=True):
        torch.testing.assert_close(mine, other, atol=1e-10, rtol=0)


def test_the_pyramid_has_256_channels_and_ends_in_128(decoder):
    shapes = [tuple(each.shape[1:]) for each in decoder(features())]
    assert shapes == [(256, 2, 2), (256, 4, 4), (256, 8, 8), (256, 16, 16), (128, 16, 16)]


class Noting(nn.Module):
    def __init__(self, give):
        super().__init__()
        self.give = give
        self.seen = []

    def forward(self, enlarged, beside):
        self.seen.append((enlarged, beside))
        return self.give(enlarged)


def test_what_an_attention_gives_replaces_the_enlarged_map(decoder):
    maps = features()
    before = decoder(maps)
    level = decoder.levels[1]
    level.attention = Noting(lambda enlarged: 3 * enlarged)
    after = decoder(maps)
    ((enlarged, beside),) = level.attention.seen
    assert (enlarged.shape[1], beside.shape[1]) == level.widths
    torch.testing.assert_close(enlarged + beside, before[2])
    torch.testing.assert_close(3 * enlarged + beside, after[2])


def test_an_attention_is_a_module_of_the_decoder(decoder):
    names = set(decoder.state_dict())
    for level in decoder.levels:
        level.attention = nn.Bilinear(2, 2, 2)
    added = set(decoder.state_dict()) - names
    assert {name.rpartition(".")[0] for name in added} == {
        f"levels.{place}.attention" for place in range(3)
    }


def test_whole_channels_are_dropped_while_training_only(decoder):
    maps = features(batch=8)
    decoder.train()
    torch.manual_seed(0)
    last = decoder(maps)[-1]
    gone = (last == 0).flatten(2).all(2).double().mean().item()
    assert 0.15 < gone < 0.25
    decoder.eval()
    assert torch.equal(decoder(maps)[-1], decoder(maps)[-1])


def test_the_head_enlarges_logits_bilinearly():
    head = EnlargingHead(3, 2, 4)
    maps = torch.rand(1, 3, 5, 7)
    expected = functional.interpolate(head.score(maps), (20, 28), mode="bilinear")
    torch.testing.assert_close(head(maps), expected)
    flat = torch.ones(1, 3, 2, 2)
    torch.testing.assert_close(head(flat), head.score(flat)[:, :, :1, :1].expand(1, 2, 8, 8))
