import torch

from polyclinic.seeds import derive, numpy_generator, torch_generator


def test_seeds_follow_from_every_part_and_only_from_them():
    assert derive(0, "amber", 1, "fit") == derive(0, "amber", 1, "fit")
    seeds = {
        derive(seed, site, number) for seed in range(5) for site in "ab" for number in range(5)
    }
    assert len(seeds) == 50
    assert derive("ab", "c") != derive("a", "bc")


def test_seeds_are_the_same_on_every_machine():
    assert derive(0, "amber", 1, "fit") == 6256383696708564483


def test_generators_draw_the_same_twice():
    draws = [torch.rand(3, generator=torch_generator(1, "x")) for _ in range(2)]
    assert torch.equal(*draws)
    assert numpy_generator(1, "x").random() == numpy_generator(1, "x").random()
