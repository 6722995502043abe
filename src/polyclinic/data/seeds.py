"""Random streams derived from what they are for, not from what was drawn before."""

from hashlib import sha256

import numpy as np


def generator(*words: str | int) -> np.random.Generator:
    """A numpy generator that depends on these words only: `generator(seed, "split", site)`."""
    digest = sha256("\0".join(map(str, words)).encode()).digest()
    return np.random.default_rng(int.from_bytes(digest[:16]))
