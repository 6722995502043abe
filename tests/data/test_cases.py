import pytest
import torch

from polyclinic.data.cases import Cases, SiteData, pool


def cases(count, value=0, dtype=torch.uint8, side=16):
    return Cases(
        names=tuple(f"{number:02d}" for number in range(count)),
        patients=tuple(f"p{number // 2}" for number in range(count)),
        images=torch.full((count, 1, side, side), value, dtype=dtype),
        labels=torch.full((count, side, side), value, dtype=torch.uint8),
        masks=torch.full((count, side, side), value, dtype=torch.uint8),
        offset=torch.arange(count, dtype=torch.float32)[:, None],
        scale=torch.ones(count, 1),
        spacing=torch.ones(count, 2, dtype=torch.float64),
    )


def site(name, kind, count, **changes):
    return SiteData(name, kind, cases(count, **changes), cases(1), cases(0))


def test_selected_cases_come_in_the_order_asked_for():
    chosen = cases(5).select([3, 0])

    assert chosen.names == ("03", "00")
    assert chosen.patients == ("p1", "p0")
    assert chosen.offset.tolist() == [[3], [0]]
    assert len(chosen) == 2


def test_selecting_nothing_gives_no_cases():
    assert cases(3).select([]).images.shape == (0, 1, 16, 16)


def test_pooled_sites_keep_every_case_and_say_whose_it_is():
    pooled = pool([site("a", "mask", 3, value=1), site("b", "mask", 2, value=2)])

    assert (pooled.name, pooled.kind) == ("pooled", "mask")
    assert pooled.train.names == ("a/00", "a/01", "a/02", "b/00", "b/01")
    assert pooled.train.patients[-1] == "b/p0"
    assert pooled.train.images[:, 0, 0, 0].tolist() == [1, 1, 1, 2, 2]
    assert (len(pooled.val), len(pooled.test)) == (2, 0)


def test_pooling_different_kinds_is_said():
    assert pool([site("a", "mask", 1), site("b", "point", 1)]).kind == "mixed"


def test_pooling_8_bit_and_other_images_keeps_the_values():
    pooled = pool([site("a", "mask", 1, value=3), site("b", "mask", 1, dtype=torch.float32)])

    assert pooled.train.images.dtype == torch.float32
    assert pooled.train.images[0].unique().tolist() == [3.0]


def test_nothing_cannot_be_pooled():
    with pytest.raises(ValueError, match="no sites"):
        pool([])
