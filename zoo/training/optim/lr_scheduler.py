"""How the learning rate changes over a run: a multiplier for each update.

Updates are counted from 0, as in the released code of all papers named here. With a warm-up, the
multiplier of update 0 is 0 there: the first update fills the optimizer's state and leaves the
weights as they are. Without a warm-up it is 1.
"""

import math
from collections.abc import Callable
from typing import Literal

import msgspec

_ENDED = ("linear", "linear-decay-from-zero", "linear-warmup-times-decay", "cosine")
_NEED_WARMUP = ("inverse-sqrt", "inverse-sqrt-constant-warmup")


class LRSchedulerConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the learning rate changes. In what follows, n is the update, w the warm-up, T the last.

    Attributes:
        name: up to update w, n / w in all but ``linear-warmup-times-decay`` and ``inverse-sqrt-constant-warmup``, then

            ``linear``: a line from 1 at w to ``end`` at T (Liu et al. 2019, arXiv:1907.11692,
            by the polynomial decay of its released code).

            ``linear-decay-from-zero``: on a line from 1 at 0 to ``end`` at T, that the warm-up stands in
            for at first: at w it falls at once to 1 - w / T, where ``end`` is 0 (Devlin et al.
            2019, arXiv:1810.04805, and Lan et al. 2020, arXiv:1909.11942, optimization.py of
            their released code).

            ``linear-warmup-times-decay``: the same line, multiplied by min(1, n / w); after w, it equals
            ``linear-decay-from-zero`` (Clark et al. 2020, arXiv:2003.10555, model/optimization.py of its
            released code).

            ``cosine``: half a cosine wave from 1 at w to ``end`` at T (Loshchilov and Hutter
            2017, arXiv:1608.03983, without restarts).

            ``inverse-sqrt``: sqrt(w / n) (Vaswani et al. 2017, arXiv:1706.03762, section 5.3,
            as a part of its highest value).

            ``inverse-sqrt-constant-warmup``: 1 up to w, then sqrt(w / n) (Raffel et al. 2020,
            arXiv:1910.10683, section 3.1.2: 1 / sqrt(max(n, w)), of which the learning rate
            is the highest value, 1 / sqrt(w)).

            ``constant``: 1.
        warmup_steps: w, in updates.
        min_lr_ratio: what the linear ones and ``cosine`` end at, as a part of the highest value.
    """

    name: Literal[
        "linear",
        "linear-decay-from-zero",
        "linear-warmup-times-decay",
        "cosine",
        "inverse-sqrt",
        "inverse-sqrt-constant-warmup",
        "constant",
    ] = "linear"
    warmup_steps: int = 0
    min_lr_ratio: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what means nothing.

        Raises:
            ValueError: a number is out of its range, or has no meaning in this schedule.
        """
        if self.warmup_steps < 0:
            raise ValueError(f"warmup_steps is {self.warmup_steps}, and updates are counted from 0")
        if not 0 <= self.min_lr_ratio <= 1:
            raise ValueError(
                f"min_lr_ratio is {self.min_lr_ratio}, which is no part of the highest rate: 0 to 1"
            )
        if self.min_lr_ratio and self.name not in _ENDED:
            raise ValueError(
                f"min_lr_ratio is {self.min_lr_ratio}, and the schedule {self.name} has no end: leave 0"
            )
        if not self.warmup_steps and self.name in _NEED_WARMUP:
            raise ValueError(f"the schedule {self.name} needs warmup_steps above 0")


def lr_multiplier(schedule: LRSchedulerConfig, step: int, total: int) -> float:
    """Return what the learning rate is multiplied by.

    Args:
        schedule: see there.
        step: the update, from 0 for the first.
        total: how many updates the run makes; from there on, the rate stays what it ends at.

    Returns:
        0 to 1.
    """
    return _SHAPES[schedule.name](schedule, step, total)


def _warm(schedule: LRSchedulerConfig, step: int) -> float:
    return step / schedule.warmup_steps if step < schedule.warmup_steps else 1.0


def _part(step: int, first: int, last: int) -> float:
    return 1.0 if step >= last else (step - first) / (last - first)


def _line(schedule: LRSchedulerConfig, step: int, first: int, last: int) -> float:
    return schedule.min_lr_ratio + (1 - schedule.min_lr_ratio) * (1 - _part(step, first, last))


def _linear(schedule: LRSchedulerConfig, step: int, total: int) -> float:
    if step < schedule.warmup_steps:
        return _warm(schedule, step)
    return _line(schedule, step, schedule.warmup_steps, total)


def _jump(schedule: LRSchedulerConfig, step: int, total: int) -> float:
    return (
        _warm(schedule, step) if step < schedule.warmup_steps else _line(schedule, step, 0, total)
    )


def _together(schedule: LRSchedulerConfig, step: int, total: int) -> float:
    return _warm(schedule, step) * _line(schedule, step, 0, total)


def _cosine(schedule: LRSchedulerConfig, step: int, total: int) -> float:
    if step < schedule.warmup_steps:
        return _warm(schedule, step)
    wave = 0.5 * (1 + math.cos(math.pi * _part(step, schedule.warmup_steps, total)))
    return schedule.min_lr_ratio + (1 - schedule.min_lr_ratio) * wave


def _inverse(schedule: LRSchedulerConfig, step: int, total: int) -> float:
    return _warm(schedule, step) * _flat(schedule, step, total)


def _flat(schedule: LRSchedulerConfig, step: int, total: int) -> float:
    return math.sqrt(schedule.warmup_steps / max(step, schedule.warmup_steps))


def _constant(schedule: LRSchedulerConfig, step: int, total: int) -> float:
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
