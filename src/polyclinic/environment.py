"""What the libraries below torch are told, before torch is imported."""

import os

ENVIRONMENT = {
    # oneDNN takes instructions for granted that some virtual machines lack, and dies of them.
    "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16",
    # Threads that wait spin shortly, then sleep: spinning long slows a busy machine down
    # twentyfold, not at all slows a quiet one by a third.
    "GOMP_SPINCOUNT": "10000",
}


def prepare_environment() -> None:
    """Set the variables that nobody has set."""
    os.environ.update({name: os.environ.get(name, value) for name, value in ENVIRONMENT.items()})
