"""Mixing the replies of five sites, against one site's round of ten steps at 96²."""

import sys
from collections.abc import Callable
from typing import Any

import torch

from bench import Ratio, in_processes, take_turns
from polyclinic.engine.process import prepare_process
from polyclinic.federation.mixing import mix
from polyclinic.federation.weights import flatten
from polyclinic.losses import segmentation_loss
from polyclinic.networks import NETWORKS

TARGETS = {"unet": 50.0}  # mixing is at most 2 % of a round
TIMES = 5  # mixtures a turn, so that waking up does not count
ROW = [0.1, 0.2, 0.3, 0.15, 0.25]
SIZE, BATCH, STEPS = 96, 12, 10


def run() -> list[Ratio]:
    return [ratio(network, target) for network, target in TARGETS.items()]


def ratio(network: str, target: float) -> Ratio:
    seconds = in_processes("bench.mixing", tuple(SIDES), network, repeats=5)
    size = flatten(NETWORKS[network](channels=1, classes=2)).flat.numel() / 1e6
    name = f"mix 5 sites, {size:.1f} M weights, against a round"
    return Ratio(name, seconds["mixing"] / TIMES, seconds["training"], target)


def work(side: str, network: str) -> None:
    prepare_process(torch.get_num_threads())  # as the engine does
    take_turns(SIDES[side](network))


def mixing(network: str) -> Callable[[], Any]:
    weights = flatten(NETWORKS[network](channels=1, classes=2))
    replies = {str(site): weights.copy() for site in range(len(ROW))}
    for reply in replies.values():
        reply.flat.normal_()
    return lambda: [mix(replies, ROW) for _ in range(TIMES)]


def training(network: str) -> Callable[[], Any]:
    net = NETWORKS[network](channels=1, classes=2)
    flatten(net)
    optimizer = torch.optim.AdamW(net.parameters(), fused=True)
    images = torch.rand(BATCH, 1, SIZE, SIZE).contiguous(memory_format=torch.channels_last)
    labels = (images[:, 0] > 0.5).to(torch.uint8)

    def steps() -> None:
        for _ in range(STEPS):
            segmentation_loss(net(images), labels).backward()
            optimizer.step()
            optimizer.zero_grad()

    return steps


SIDES = {"mixing": mixing, "training": training}

if __name__ == "__main__":
    work(*sys.argv[1:])
