"""Compiled kernels of one image on whole batches, wherever the batch lives."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor


def each_image(kernel: Callable[..., None], *batches: Tensor) -> None:
    """Call a kernel once for each image with its part of every batch, all in the CPU's memory.

    Images are shared out among as many threads as torch uses. They are plain threads, and the
    kernels let go of Python's lock: of numba's own pools one ends the process when two threads
    call it at once, another when the process was forked. Starting them takes 0.1 ms.
    """
    arrays = [batch.numpy() for batch in batches]
    threads = min(torch.get_num_threads(), len(arrays[0]))
    if threads < 2:
        for parts in zip(*arrays, strict=True):
            kernel(*parts)
        return
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(kernel, *arrays))


def on_host(tensor: Tensor) -> Tensor:
    """The tensor without gradient, dense in the CPU's memory."""
    return tensor.detach().cpu().contiguous()


def accuracy(*tensors: Tensor) -> torch.dtype:
    """The float type to work in: the widest of the tensors', and float32 at least."""
    widest = torch.float32
    for tensor in tensors:
        widest = torch.promote_types(widest, tensor.dtype)
    return widest
