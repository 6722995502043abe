"""Derived randomness: every draw's seed follows from what it is for, not from earlier draws."""

from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch


def derive(*parts: object) -> int:
    """A 63-bit seed that depends on every part, the same on every machine."""
    text = "\x1f".join(str(part) for part in parts)
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def numpy_generator(*parts: object) -> np.random.Generator:
    """A generator seeded by `derive`, such as `numpy_generator(seed, "split", site)`."""
    return np.random.default_rng(derive(*parts))


def torch_generator(*parts: object) -> "torch.Generator":
    """A CPU generator seeded by `derive`."""
    import torch

    return torch.Generator().manual_seed(derive(*parts))
