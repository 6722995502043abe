import math

import pytest
import torch
from torch import nn

from polyclinic.config import TrainingSettings
from polyclinic.federation.optimizing import (
    after_rounds,
    autocast,
    clip,
    learning_rate,
    optimizing,
)


@pytest.mark.parametrize(
    ("step", "rate"),
    [(2500, 0.00924678), (5000, 0.00848666), (10000, 0.00694253), (25000, 0.00199372)],
)
def test_the_poly_schedule_gives_the_published_rates(step, rate):
    assert learning_rate(TrainingSettings(), step / 30000) == pytest.approx(rate, abs=5e-9)


def test_schedules_start_at_the_rate_and_end_at_nothing_or_stay():
    for schedule in ("poly", "cosine"):
        training = TrainingSettings(schedule=schedule)
        rates = [learning_rate(training, progress / 10) for progress in range(-2, 13)]
        assert rates[0] == rates[1] == rates[2] == 0.01
        assert rates[-1] == rates[-2] == rates[-3] == pytest.approx(0, abs=1e-12)
        assert rates == sorted(rates, reverse=True)
    assert learning_rate(TrainingSettings(schedule="constant"), 0.9) == 0.01
    half = learning_rate(TrainingSettings(schedule="cosine"), 0.5)
    assert half == pytest.approx(0.01 * (1 + math.cos(math.pi / 2)) / 2)


def test_after_the_rounds_the_rate_is_constant_and_smaller():
    training = after_rounds(TrainingSettings(keep_optimizer=True), 0.1)
    assert learning_rate(training, 1.5) == pytest.approx(0.001)
    assert not training.keep_optimizer


def parameters(seed: int = 0) -> dict[str, nn.Parameter]:
    rng = torch.Generator().manual_seed(seed)
    return {
        "conv": nn.Parameter(
            torch.randn(4, 3, 2, 2, generator=rng).to(memory_format=torch.channels_last)
        ),
        "bias": nn.Parameter(torch.randn(4, generator=rng)),
    }


def give_gradients(chosen: dict[str, nn.Parameter], seed: int, scale: float = 1.0) -> None:
    rng = torch.Generator().manual_seed(seed)
    for parameter in chosen.values():
        gradient = torch.randn(parameter.shape, generator=rng) * scale
        parameter.grad = torch.empty_like(parameter).copy_(gradient)


def test_gradients_are_bounded_by_norm_and_by_value():
    chosen = parameters()
    give_gradients(chosen, 1, scale=100)
    clip(chosen, TrainingSettings(clip_norm=1.0))
    total = torch.cat([p.grad.flatten() for p in chosen.values()]).norm()
    assert float(total) == pytest.approx(1.0, abs=1e-4)
    give_gradients(chosen, 1, scale=100)
    clip(chosen, TrainingSettings(clip_value=0.5))
    assert max(float(p.grad.abs().max()) for p in chosen.values()) == 0.5
    give_gradients(chosen, 1, scale=100)
    clip(chosen, TrainingSettings(clip_norm=1.0, clip_value=0.01))
    assert max(float(p.grad.abs().max()) for p in chosen.values()) == pytest.approx(0.01)


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd"])
def test_a_kept_optimizer_goes_on_as_if_never_stopped(optimizer):
    training = TrainingSettings(optimizer=optimizer, keep_optimizer=True)
    whole, parts, memory = parameters(), parameters(), {}
    with optimizing(whole, training, {}, "main") as step:
        for number in range(4):
            give_gradients(whole, number)
            step(0.01)
    for start in (0, 2):
        # A file gives tensors back in plain order, whatever the order of the parameter.
        memory = {name: tensor.clone().contiguous() for name, tensor in memory.items()}
        with optimizing(parts, training, memory, "main") as step:
            for number in range(start, start + 2):
                give_gradients(parts, number)
                step(0.01)
    assert memory
    for name in whole:
        assert torch.equal(whole[name], parts[name])


def test_a_new_optimizer_leaves_nothing_in_memory():
    memory: dict[str, torch.Tensor] = {}
    chosen = parameters()
    with optimizing(chosen, TrainingSettings(), memory, "main") as step:
        give_gradients(chosen, 0)
        step(0.01)
    assert memory == {}
    assert all(parameter.grad is None for parameter in chosen.values())


def test_an_update_takes_the_place_of_the_step():
    chosen, seen = parameters(), []
    before = chosen["bias"].clone()
    with optimizing(chosen, TrainingSettings(), {}, "main", update=seen.append) as step:
        give_gradients(chosen, 0)
        step(0.01)
    assert seen == [chosen]
    assert torch.equal(chosen["bias"], before)


def test_nothing_to_train_is_no_mistake():
    with optimizing({}, TrainingSettings(), {}, "main") as step:
        step(0.01)


def test_mixed_precision_is_used_where_asked_for_or_where_the_device_profits():
    cpu, cuda = torch.device("cpu"), torch.device("cuda")
    product = {}
    for precision in ("auto", "float32", "bfloat16"):
        with autocast(TrainingSettings(precision=precision), cpu):
            product[precision] = (torch.ones(8, 8) @ torch.ones(8, 8)).dtype
    assert product == {
        "auto": torch.float32,
        "float32": torch.float32,
        "bfloat16": torch.bfloat16,
    }
    if torch.cuda.is_available():  # pragma: no cover
        assert isinstance(autocast(TrainingSettings(), cuda), torch.autocast)


def test_a_kept_state_of_other_weights_is_left_alone():
    training = TrainingSettings(keep_optimizer=True)
    memory: dict[str, torch.Tensor] = {}
    both = parameters()
    with optimizing(both, training, memory, "main") as step:
        give_gradients(both, 0)
        step(0.01)
    kept = memory["optimizer/main/conv/exp_avg"].clone()
    alone = {"bias": both["bias"]}
    with optimizing(alone, training, memory, "main") as step:
        give_gradients(alone, 1)
        step(0.01)
    assert torch.equal(memory["optimizer/main/conv/exp_avg"], kept)
    assert memory["optimizer/main/bias/step"] == 2
