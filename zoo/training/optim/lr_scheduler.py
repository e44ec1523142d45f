"""Learning-rate schedules: a factor of the learning rate for each update."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from zoo.families.recipe import LRSchedulerConfig

if TYPE_CHECKING:
    from zoo.training.config.run_config import RunConfig

Shape = Callable[[LRSchedulerConfig, int, int], float]  # of the update and the number of updates


def learning_rate(config: "RunConfig", step: int) -> float:
    """Return the learning rate of an update of a run."""
    warmup = getattr(config, "seq_len_warmup", None)
    rate = config.optimizer.learning_rate
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


def _cosine(done: float) -> float:
    return 0.5 * (1 + math.cos(math.pi * done))


def _above_minimum(schedule: LRSchedulerConfig, left: float) -> float:
    return schedule.min_lr_ratio + (1 - schedule.min_lr_ratio) * left


def _linear_decay(schedule: LRSchedulerConfig, step: int, first: int, last: int) -> float:
    return _above_minimum(schedule, 1 - _progress(step, first, last))


def _inverse_sqrt(schedule: LRSchedulerConfig, step: int, total: int) -> float:
    # 1 during the warm-up (Raffel et al. 2020, arXiv:1910.10683, section 3.1.2)
    return math.sqrt(schedule.warmup_steps / max(step, schedule.warmup_steps))


def _warmup_stable_decay(schedule: LRSchedulerConfig, step: int, total: int) -> float:
    begin = total - round(schedule.decay_fraction * total)
    if step < max(begin, schedule.warmup_steps):
        return _warmup(schedule, step)
    done = _progress(step, begin, total)
    left = {"1-sqrt": 1 - math.sqrt(done), "linear": 1 - done, "cosine": _cosine(done)}
    return _above_minimum(schedule, left[schedule.decay_type])


def _after_warmup(decay: Shape) -> Shape:
    def factor(schedule: LRSchedulerConfig, step: int, total: int) -> float:
        in_warmup = step < schedule.warmup_steps
        return _warmup(schedule, step) if in_warmup else decay(schedule, step, total)

    return factor


_SHAPES: dict[str, Shape] = {
    "linear": _after_warmup(
        lambda schedule, step, total: _linear_decay(schedule, step, schedule.warmup_steps, total)
    ),
    # the decay starts at step 0, so the rate jumps down when the warm-up ends
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
