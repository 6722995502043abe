"""Mixing the replies of five sites, against a loop over named tensors."""

import torch

from bench import Ratio, interleaved
from polyclinic.federation.mixing import mix
from polyclinic.federation.weights import flatten
from polyclinic.networks import NETWORKS

TARGETS = {"unet": 8.0, "classic_unet": 5.0}


def run() -> list[Ratio]:
    return [ratio(name) for name in NETWORKS if name in TARGETS]


def ratio(name: str) -> Ratio:
    weights = flatten(NETWORKS[name](channels=1, classes=2))
    replies = {str(site): weights.copy() for site in range(5)}
    for reply in replies.values():
        reply.flat.normal_()
    row = [0.1, 0.2, 0.3, 0.15, 0.25]
    plain = [{n: t.contiguous() for n, t in reply.items()} for reply in replies.values()]

    def dict_loop() -> dict[str, torch.Tensor]:
        mixed = {}
        for key in plain[0]:
            mixed[key] = torch.zeros_like(plain[0][key])
            for reply, weight in zip(plain, row, strict=True):
                mixed[key] = mixed[key] + weight * reply[key]
        return mixed

    seconds = interleaved({"ours": lambda: mix(replies, row), "loop": dict_loop}, repeats=15)
    size = weights.flat.numel() / 1e6
    return Ratio(
        f"mix 5 sites, {size:.1f} M weights", seconds["ours"], seconds["loop"], TARGETS[name]
    )
