import math
from typing import Any

import msgspec
import pytest
import torch
import transformers

from zoo.families.recipe import LRSchedulerConfig
from zoo.training.optim.lr_scheduler import lr_multiplier


def rates(total: int, **settings: Any) -> list[float]:
    return [lr_multiplier(LRSchedulerConfig(**settings), step, total) for step in range(total + 3)]


def of_transformers(total: int, function: Any, *arguments: Any) -> list[float]:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler = function(optimizer, *arguments)
    factors = []
    for _ in range(total + 3):
        factors.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return factors


@pytest.mark.parametrize("warmup", [1, 4])
@pytest.mark.parametrize(
    ("name", "function", "takes_total"),
    [
        ("constant", transformers.get_constant_schedule_with_warmup, False),
        ("linear", transformers.get_linear_schedule_with_warmup, True),
        ("cosine", transformers.get_cosine_schedule_with_warmup, True),
        ("inverse-sqrt", transformers.get_inverse_sqrt_schedule, False),
    ],
)
def test_transformers_has_the_same(
    name: str, function: Any, takes_total: bool, warmup: int
) -> None:
    if name == "inverse-sqrt" and not warmup:
        pytest.skip("needs a warm-up")
    total = 10
    expected = of_transformers(total, function, warmup, *([total] if takes_total else []))
    if name == "cosine":  # it increases again after the last update
        expected[total:] = [0.0] * 3
    assert rates(total, name=name, warmup_steps=warmup) == pytest.approx(expected, abs=1e-15)


# with a lowest rate, its warm-up begins there, and not at 0
@pytest.mark.parametrize(("warmup", "lowest"), [(0, 0.0), (4, 0.0), (0, 0.2)])
@pytest.mark.parametrize("shape", ["1-sqrt", "linear", "cosine"])
def test_transformers_has_the_same_stable_phase_and_decay(
    shape: Any, warmup: int, lowest: float
) -> None:
    total, falling = 20, 5
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler = transformers.get_wsd_schedule(
        optimizer,
        num_warmup_steps=warmup,
        num_decay_steps=falling,
        num_training_steps=total,
        decay_type=shape,
        min_lr_ratio=lowest,
    )
    expected = []
    for _ in range(total + 3):
        expected.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    schedule = {"warmup_steps": warmup, "min_lr_ratio": lowest, "decay_fraction": 0.25}
    actual = rates(total, name="warmup-stable-decay", decay_type=shape, **schedule)
    assert actual == pytest.approx(expected, abs=1e-15)


def test_a_decay_of_no_updates_is_refused() -> None:
    with pytest.raises(ValueError, match="decay_fraction is 0"):
        LRSchedulerConfig(name="warmup-stable-decay", decay_fraction=0.0)


def test_without_a_warm_up_the_first_update_has_the_highest_rate() -> None:
    line = [1, 0.75, 0.5, 0.25, 0, 0, 0]
    assert rates(4, name="constant") == [1] * 7
    for name in ("linear", "linear-decay-from-zero", "linear-warmup-times-decay"):
        assert rates(4, name=name) == line
    assert rates(4, name="cosine")[:3] == pytest.approx([1, 0.5 + 0.5**1.5, 0.5])


def test_warm_up_may_stand_in_for_a_line_from_the_start() -> None:
    # tf.train.polynomial_decay from update 0, and init_lr * step / warmup where step < warmup
    assert rates(10, name="linear-decay-from-zero", warmup_steps=4) == pytest.approx(
        [0, 0.25, 0.5, 0.75, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0, 0, 0]
    )


def test_warm_up_may_multiply_a_line_from_the_start() -> None:
    # tf.train.polynomial_decay from update 0, times min(1, step / warmup)
    assert rates(10, name="linear-warmup-times-decay", warmup_steps=4) == pytest.approx(
        [0, 0.25 * 0.9, 0.5 * 0.8, 0.75 * 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0, 0, 0]
    )


def test_a_line_may_end_above_zero() -> None:
    line = [0.2 + 0.8 * (1 - k / 4) for k in range(4)]
    for name in ("linear", "linear-decay-from-zero", "linear-warmup-times-decay"):
        assert rates(4, name=name, min_lr_ratio=0.2) == pytest.approx([*line, 0.2, 0.2, 0.2])
    wave = [0.6, 0.2 + 0.4 * (1 - 0.5**0.5), 0.2, 0.2, 0.2]
    assert rates(4, name="cosine", min_lr_ratio=0.2)[2:] == pytest.approx(wave)


def test_the_inverse_root_is_that_of_the_papers() -> None:
    # d ** -0.5 * min(n ** -0.5, n * w ** -1.5), whose highest value is d ** -0.5 * w ** -0.5
    for n, rate in enumerate(rates(30, name="inverse-sqrt", warmup_steps=9)):
        expected = min(n**-0.5, n * 9**-1.5) * 9**0.5 if n else 0.0
        assert rate == pytest.approx(expected)
    # 1 / sqrt(max(n, 10 ** 4)): 0.01 during warm-up
    flat = LRSchedulerConfig(name="inverse-sqrt-constant-warmup", warmup_steps=10_000)
    for n in (0, 1, 9_999, 10_000, 10_001, 500_000):
        assert 0.01 * lr_multiplier(flat, n, 2**19) == pytest.approx(1 / math.sqrt(max(n, 10_000)))


def test_a_run_may_be_shorter_than_its_warm_up() -> None:
    for name in ("linear", "linear-decay-from-zero", "cosine", "constant", "inverse-sqrt"):
        assert rates(3, name=name, warmup_steps=5)[:3] == pytest.approx([0, 0.2, 0.4])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"warmup_steps": -1}, "warmup_steps is -1"),
        ({"min_lr_ratio": 1.5}, r"min_lr_ratio is 1\.5"),
        ({"min_lr_ratio": float("nan")}, "min_lr_ratio is nan"),
        ({"name": "constant", "min_lr_ratio": 0.1}, "has no end"),
        ({"name": "inverse-sqrt"}, "needs warmup_steps above 0"),
        ({"name": "inverse-sqrt-constant-warmup"}, "needs warmup_steps above 0"),
    ],
)
def test_invalid_values_are_errors(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LRSchedulerConfig(**settings)
    with pytest.raises(msgspec.ValidationError, match=message):
        msgspec.convert(settings, LRSchedulerConfig)
