"""A process that trains: its threads, and how it keeps memory between training steps."""

import ctypes
import platform

import numba
import torch

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_MAX = -1, -2, -4
GROWTH = 64 << 20


def prepare_process(threads: int) -> None:
    """Make this process ready to train."""
    keep_freed_memory()
    # numba first: where it starts its own threads here, it would set torch's number anew.
    numba.set_num_threads(min(threads, numba.config.NUMBA_NUM_THREADS))  # type: ignore[attr-defined]
    torch.set_num_threads(threads)


def keep_freed_memory() -> bool:
    """Let freed memory stay with the process, and tell whether that was possible.

    Every step needs the same large buffers. As it comes, the C library returns them to the system
    after use, which then has to clear every page again: about a fifth of a training step. Only
    glibc knows these settings; elsewhere nothing happens. The process's memory never shrinks, and
    its peak is up to a fifth higher.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    adjust = ctypes.CDLL(None).mallopt
    return all((adjust(M_MMAP_MAX, 0), adjust(M_TRIM_THRESHOLD, -1), adjust(M_TOP_PAD, GROWTH)))
