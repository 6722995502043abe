"""What the training loop needs of an optimizer: schedule, clipping, precision, kept state."""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial

import torch
from torch import Tensor, nn

from polyclinic.config import TrainingSettings

Parameters = Mapping[str, nn.Parameter]


def learning_rate(training: TrainingSettings, progress: float) -> float:
    """The learning rate after this share of the rounds; before them as at 0, after as at 1."""
    left = min(1.0, max(0.0, 1.0 - progress))
    factors = {
        "poly": left**training.power,
        "cosine": (1 + math.cos(math.pi * (1 - left))) / 2,
        "constant": 1.0,
    }
    return training.learning_rate * factors[training.schedule]


def after_rounds(training: TrainingSettings, factor: float = 0.1) -> TrainingSettings:
    """Settings for work after the last round: a constant, smaller rate and a new optimizer."""
    rate = {"learning_rate": factor * training.learning_rate, "schedule": "constant"}
    return training.model_copy(update=rate | {"keep_optimizer": False})


def clip(parameters: Parameters, training: TrainingSettings) -> None:
    """Bound the gradients, by their common norm or one by one, where the settings ask for it."""
    if training.clip_norm is not None:
        nn.utils.clip_grad_norm_(parameters.values(), training.clip_norm)
    if training.clip_value is not None:
        nn.utils.clip_grad_value_(parameters.values(), training.clip_value)


def autocast(training: TrainingSettings, device: torch.device) -> AbstractContextManager[object]:
    """Mixed precision where it is asked for, or where `auto` finds a device that profits."""
    if training.precision == "float32" or (training.precision == "auto" and device.type == "cpu"):
        return nullcontext()
    return torch.autocast(device.type, dtype=torch.bfloat16)


@contextmanager
def optimizing(
    parameters: Parameters,
    training: TrainingSettings,
    memory: dict[str, Tensor],
    stream: str,
    update: Callable[[Parameters], None] | None = None,
) -> Iterator[Callable[[float], None]]:
    """A function that takes a step at a learning rate and forgets the gradients.

    With `keep_optimizer` the optimizer's state is found in and left in the memory.
    """
    optimizer = _optimizer(parameters, training) if parameters and not update else None
    prefix = f"optimizer/{stream}/"
    if optimizer and training.keep_optimizer:
        _restore(optimizer, parameters, memory, prefix)

    def step(rate: float) -> None:
        if update:
            update(parameters)
        elif optimizer:
            for group in optimizer.param_groups:
                group["lr"] = rate
            optimizer.step()
        for parameter in parameters.values():
            parameter.grad = None

    yield step
    if optimizer and training.keep_optimizer:
        memory.update(_state(optimizer, parameters, prefix))


def _optimizer(parameters: Parameters, training: TrainingSettings) -> torch.optim.Optimizer:
    kinds: dict[str, Callable[..., torch.optim.Optimizer]] = {
        "adam": torch.optim.Adam,
        "adamw": torch.optim.AdamW,
        "sgd": partial(torch.optim.SGD, momentum=training.momentum),
    }
    return kinds[training.optimizer](
        list(parameters.values()),
        lr=training.learning_rate,
        weight_decay=training.weight_decay,
        fused=True,
    )


def _restore(
    optimizer: torch.optim.Optimizer, parameters: Parameters, memory: dict[str, Tensor], prefix: str
) -> None:
    for key, value in memory.items():
        if not key.startswith(prefix):
            continue
        name, _, slot = key.removeprefix(prefix).rpartition("/")
        if name in parameters:
            # The fused step walks memory, so a state must lie there as its parameter does.
            like = parameters[name] if value.shape == parameters[name].shape else value
            optimizer.state[parameters[name]][slot] = torch.empty_like(like).copy_(value)


def _state(
    optimizer: torch.optim.Optimizer, parameters: Parameters, prefix: str
) -> dict[str, Tensor]:
    return {
        f"{prefix}{name}/{slot}": value
        for name, parameter in parameters.items()
        for slot, value in optimizer.state[parameter].items()
        if isinstance(value, Tensor)
    }
