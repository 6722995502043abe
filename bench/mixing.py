"""Mixing the replies of five sites, against a loop over named tensors."""

import sys
from collections.abc import Callable
from typing import Any

import torch

from bench import Ratio, in_processes, take_turns
from polyclinic.engine.local import prepare_process
from polyclinic.federation.mixing import mix
from polyclinic.federation.weights import Weights, flatten
from polyclinic.networks import NETWORKS

TARGETS = {"unet": 8.0, "classic_unet": 5.0}
TIMES = 5  # a turn, so that waking up does not count
ROW = [0.1, 0.2, 0.3, 0.15, 0.25]


def run() -> list[Ratio]:
    return [ratio(network, target) for network, target in TARGETS.items()]


def ratio(network: str, target: float) -> Ratio:
    seconds = in_processes("bench.mixing", tuple(SIDES), network, repeats=15)
    size = flatten(NETWORKS[network](channels=1, classes=2)).flat.numel() / 1e6
    return Ratio(f"mix 5 sites, {size:.1f} M weights", seconds["ours"], seconds["loop"], target)


def work(side: str, network: str) -> None:
    weights = flatten(NETWORKS[network](channels=1, classes=2))
    replies = {str(site): weights.copy() for site in range(len(ROW))}
    for reply in replies.values():
        reply.flat.normal_()
    mix_once = SIDES[side](replies)
    take_turns(lambda: [mix_once() for _ in range(TIMES)])


def ours(replies: dict[str, Weights]) -> Callable[[], Any]:
    prepare_process(torch.get_num_threads())  # as the engine does
    return lambda: mix(replies, ROW)


def dict_loop(replies: dict[str, Weights]) -> Callable[[], Any]:
    plain = [{n: t.contiguous() for n, t in reply.items()} for reply in replies.values()]

    def loop() -> dict[str, torch.Tensor]:
        mixed = {}
        for key in plain[0]:
            mixed[key] = torch.zeros_like(plain[0][key])
            for reply, weight in zip(plain, ROW, strict=True):
                mixed[key] = mixed[key] + weight * reply[key]
        return mixed

    return loop


SIDES = {"ours": ours, "loop": dict_loop}

if __name__ == "__main__":
    work(*sys.argv[1:])
