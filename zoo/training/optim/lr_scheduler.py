"""Learning-rate schedules: a factor of the learning rate for each update.

Updates are counted from 0, as in the released code of the papers. With a warm-up, the factor of
update 0 is 0: it fills the optimizer's state and leaves the weights unchanged. Without a warm-up it
is 1. The schedules are pure functions of the update, so there is no state to save.
"""

import math
from collections.abc import Callable

from zoo.families.recipe import LRSchedulerConfig


def lr_multiplier(schedule: LRSchedulerConfig, step: int, total: int) -> float:
    """Return the factor of the learning rate, from 0 to 1."""
    return _SHAPES[schedule.name](schedule, step, total)


def _warm(schedule: LRSchedulerConfig, step: int) -> float:
    # step / warmup_steps during the warm-up, then 1
    return step / schedule.warmup_steps if step < schedule.warmup_steps else 1.0


def _part(step: int, first: int, last: int) -> float:
    # the fraction of the steps from ``first`` to ``last`` that is done
    return 1.0 if step >= last else (step - first) / (last - first)


def _line(schedule: LRSchedulerConfig, step: int, first: int, last: int) -> float:
    # the factor of a linear decay from 1 to ``min_lr_ratio``
    return schedule.min_lr_ratio + (1 - schedule.min_lr_ratio) * (1 - _part(step, first, last))


def _linear(schedule: LRSchedulerConfig, step: int, total: int) -> float:
    # linear warm-up, then linear decay over the remaining steps
    if step < schedule.warmup_steps:
        return _warm(schedule, step)
    return _line(schedule, step, schedule.warmup_steps, total)


def _jump(schedule: LRSchedulerConfig, step: int, total: int) -> float:
    # linear warm-up, then the value of a linear decay that starts at step 0
    return (
        _warm(schedule, step) if step < schedule.warmup_steps else _line(schedule, step, 0, total)
    )


def _together(schedule: LRSchedulerConfig, step: int, total: int) -> float:
    # product of a linear warm-up and of a linear decay that starts at step 0
    return _warm(schedule, step) * _line(schedule, step, 0, total)


def _cosine(schedule: LRSchedulerConfig, step: int, total: int) -> float:
    # linear warm-up, then half a period of a cosine
    if step < schedule.warmup_steps:
        return _warm(schedule, step)
    wave = 0.5 * (1 + math.cos(math.pi * _part(step, schedule.warmup_steps, total)))
    return schedule.min_lr_ratio + (1 - schedule.min_lr_ratio) * wave


def _inverse(schedule: LRSchedulerConfig, step: int, total: int) -> float:
    # linear warm-up, then decay with 1 / sqrt(step)
    return _warm(schedule, step) * _flat(schedule, step, total)


def _flat(schedule: LRSchedulerConfig, step: int, total: int) -> float:
    # 1 during the warm-up, then decay with 1 / sqrt(step)
    return math.sqrt(schedule.warmup_steps / max(step, schedule.warmup_steps))


def _constant(schedule: LRSchedulerConfig, step: int, total: int) -> float:
    # linear warm-up, then 1
    return _warm(schedule, step)


_SHAPES: dict[str, Callable[[LRSchedulerConfig, int, int], float]] = {
    "linear": _linear,
    "linear-decay-from-zero": _jump,
    "linear-warmup-times-decay": _together,
    "cosine": _cosine,
    "inverse-sqrt": _inverse,
    "inverse-sqrt-constant-warmup": _flat,
    "constant": _constant,
}
