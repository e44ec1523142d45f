"""Learning-rate schedules: a factor of the learning rate for each update."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from zoo.families.recipe import LRSchedulerConfig

if TYPE_CHECKING:
    from zoo.training.config.run_config import RunConfig


def learning_rate(config: "RunConfig", step: int) -> float:
    """Return the learning rate of an update of a run."""
    warmup, rate = getattr(config, "seq_len_warmup", None), config.optimizer.learning_rate
    if warmup is not None and warmup.learning_rate is not None:
        rate = warmup.learning_rate if step < config.seq_len_warmup_steps else rate
    return rate * lr_multiplier(config.lr_scheduler, step, config.max_steps)


def lr_multiplier(schedule: LRSchedulerConfig, step: int, total: int) -> float:
    """Return the factor of the learning rate, from 0 to 1."""
    # Updates are counted from 0, as in the released code of the papers. With a warm-up, the factor
    # of update 0 is 0: it fills the optimizer's state and leaves the weights unchanged. Without a
    # warm-up it is 1. The schedules are pure functions of the update, so there is no state to save.
    return _SHAPES[schedule.name](schedule, step, total)


def _warmup(schedule: LRSchedulerConfig, step: int) -> float:
    return step / schedule.warmup_steps if step < schedule.warmup_steps else 1.0


def _progress(step: int, first: int, last: int) -> float:
    # fraction of the steps from ``first`` to ``last`` that are done
    return 1.0 if step >= last else (step - first) / (last - first)


def _linear_decay(schedule: LRSchedulerConfig, step: int, first: int, last: int) -> float:
    return schedule.min_lr_ratio + (1 - schedule.min_lr_ratio) * (1 - _progress(step, first, last))


def _linear(schedule: LRSchedulerConfig, step: int, total: int) -> float:
    if step < schedule.warmup_steps:
        return _warmup(schedule, step)
    return _linear_decay(schedule, step, schedule.warmup_steps, total)


def _linear_decay_from_zero(schedule: LRSchedulerConfig, step: int, total: int) -> float:
    # the decay starts at step 0, so the rate jumps down when the warm-up ends
    if step < schedule.warmup_steps:
        return _warmup(schedule, step)
    return _linear_decay(schedule, step, 0, total)


def _cosine(schedule: LRSchedulerConfig, step: int, total: int) -> float:
    if step < schedule.warmup_steps:
        return _warmup(schedule, step)
    wave = 0.5 * (1 + math.cos(math.pi * _progress(step, schedule.warmup_steps, total)))
    return schedule.min_lr_ratio + (1 - schedule.min_lr_ratio) * wave


def _inverse_sqrt_constant_warmup(schedule: LRSchedulerConfig, step: int, total: int) -> float:
    # 1 during the warm-up (Raffel et al. 2020, arXiv:1910.10683, section 3.1.2)
    return math.sqrt(schedule.warmup_steps / max(step, schedule.warmup_steps))


def _warmup_stable_decay(schedule: LRSchedulerConfig, step: int, total: int) -> float:
    begin = total - round(schedule.decay_fraction * total)
    if step < max(begin, schedule.warmup_steps):
        return _warmup(schedule, step)
    done = _progress(step, begin, total)
    left = {
        "1-sqrt": 1 - math.sqrt(done),
        "linear": 1 - done,
        "cosine": 0.5 * (1 + math.cos(math.pi * done)),
    }[schedule.decay_type]
    return schedule.min_lr_ratio + (1 - schedule.min_lr_ratio) * left


_SHAPES: dict[str, Callable[[LRSchedulerConfig, int, int], float]] = {
    "linear": _linear,
    "linear-decay-from-zero": _linear_decay_from_zero,
    "linear-warmup-times-decay": lambda schedule, step, total: (
        _warmup(schedule, step) * _linear_decay(schedule, step, 0, total)
    ),
    "cosine": _cosine,
    "inverse-sqrt": lambda schedule, step, total: (
        _warmup(schedule, step) * _inverse_sqrt_constant_warmup(schedule, step, total)
    ),
    "inverse-sqrt-constant-warmup": _inverse_sqrt_constant_warmup,
    "constant": lambda schedule, step, total: _warmup(schedule, step),
    "warmup-stable-decay": _warmup_stable_decay,
}
