"""Learning-rate schedules: a factor of the learning rate for each update."""

import math
from collections.abc import Callable

from zoo.families.recipe import LRSchedulerConfig

Shape = Callable[[LRSchedulerConfig, int, int], float]  # of the update and the number of updates


def lr_multiplier(schedule: LRSchedulerConfig, step: int, total: int) -> float:
    """Return the factor of the learning rate, from 0 to 1.

    Updates are counted from 0, as in the released code of the papers. The factor of update 0 is 1,
    or 0 with a warm-up: then it fills the optimizer's state and leaves the weights unchanged.
    """
    # The schedules are pure functions of the update, so that there is no state to save.
    return _SHAPES[schedule.name](schedule, step, total)


def _warmup(schedule: LRSchedulerConfig, step: int) -> float:
    if step >= schedule.warmup_steps:
        return 1.0
    return step / schedule.warmup_steps


def _progress(step: int, first: int, last: int) -> float:
    """Return the fraction of the steps from ``first`` to ``last`` that are done."""
    if step >= last:
        return 1.0
    return (step - first) / (last - first)


def _cosine(progress: float) -> float:
    return 0.5 * (1 + math.cos(math.pi * progress))


def _above_minimum(schedule: LRSchedulerConfig, factor: float) -> float:
    """Return a factor from 0 to 1, scaled to the range from the schedule's minimum to 1."""
    return schedule.min_lr_ratio + (1 - schedule.min_lr_ratio) * factor


def _linear_decay(schedule: LRSchedulerConfig, step: int, first: int, last: int) -> float:
    return _above_minimum(schedule, 1 - _progress(step, first, last))


def _inverse_sqrt(schedule: LRSchedulerConfig, step: int, total: int) -> float:
    # The factor is 1 during the warm-up (Raffel et al. 2020, arXiv:1910.10683, section 3.1.2).
    return math.sqrt(schedule.warmup_steps / max(step, schedule.warmup_steps))


def _warmup_stable_decay(schedule: LRSchedulerConfig, step: int, total: int) -> float:
    decay_start = total - round(schedule.decay_fraction * total)
    if step < max(decay_start, schedule.warmup_steps):
        return _warmup(schedule, step)
    progress = _progress(step, decay_start, total)
    factors = {
        "1-sqrt": 1 - math.sqrt(progress),
        "linear": 1 - progress,
        "cosine": _cosine(progress),
    }
    return _above_minimum(schedule, factors[schedule.decay_type])


def _after_warmup(decay: Shape) -> Shape:
    def factor(schedule: LRSchedulerConfig, step: int, total: int) -> float:
        if step < schedule.warmup_steps:
            return _warmup(schedule, step)
        return decay(schedule, step, total)

    return factor


_SHAPES: dict[str, Shape] = {
    "linear": _after_warmup(
        lambda schedule, step, total: _linear_decay(schedule, step, schedule.warmup_steps, total)
    ),
    # The decay starts at step 0, so that the rate jumps down when the warm-up ends.
    "linear-decay-from-zero": _after_warmup(
        lambda schedule, step, total: _linear_decay(schedule, step, 0, total)
    ),
    "linear-warmup-times-decay": lambda schedule, step, total: (
        _warmup(schedule, step) * _linear_decay(schedule, step, 0, total)
    ),
    "cosine": _after_warmup(
        lambda schedule, step, total: _above_minimum(
            schedule, _cosine(_progress(step, schedule.warmup_steps, total))
        )
    ),
    "inverse-sqrt": _after_warmup(_inverse_sqrt),
    "inverse-sqrt-constant-warmup": _inverse_sqrt,
    "constant": lambda schedule, step, total: _warmup(schedule, step),
    "warmup-stable-decay": _warmup_stable_decay,
}
