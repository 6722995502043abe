"""Derived randomness: every draw's seed follows from where and when it is drawn."""

from __future__ import annotations

from hashlib import blake2b

import torch


def derive(*parts: object) -> int:
    """A 63-bit seed that depends on every part, the same on every machine."""
    text = "\x1f".join(str(part) for part in parts)
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def generator(*parts: object) -> torch.Generator:
    """A CPU generator seeded by `derive`."""
    return torch.Generator().manual_seed(derive(*parts))
