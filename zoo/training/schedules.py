"""How the learning rate changes over a run: a multiplier for each update.

Updates are counted from 0, as in the released code of all papers named here. With a warm-up, the
multiplier of update 0 is 0 there: the first update fills the optimizer's state and leaves the
weights as they are. Without a warm-up it is 1.
"""

import math
from collections.abc import Callable
from typing import Literal

import msgspec

_ENDED = ("linear", "linear-jump", "linear-together", "cosine")
_NEED_WARMUP = ("inverse-sqrt", "inverse-sqrt-flat")


class ScheduleSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the learning rate changes. In what follows, n is the update, w the warm-up, T the last.

    Attributes:
        name: up to update w, n / w in all but ``linear-together`` and ``inverse-sqrt-flat``, then

            ``linear``: a line from 1 at w to ``end`` at T (Liu et al. 2019, arXiv:1907.11692,
            by the polynomial decay of its released code).

            ``linear-jump``: on a line from 1 at 0 to ``end`` at T, that the warm-up stands in
            for at first: at w it falls at once to 1 - w / T, where ``end`` is 0 (Devlin et al.
            2019, arXiv:1810.04805, and Lan et al. 2020, arXiv:1909.11942, optimization.py of
            their released code).

            ``linear-together``: the same line, multiplied by min(1, n / w); after w, it equals
            ``linear-jump`` (Clark et al. 2020, arXiv:2003.10555, model/optimization.py of its
            released code).

            ``cosine``: half a cosine wave from 1 at w to ``end`` at T (Loshchilov and Hutter
            2017, arXiv:1608.03983, without restarts).

            ``inverse-sqrt``: sqrt(w / n) (Vaswani et al. 2017, arXiv:1706.03762, section 5.3,
            as a part of its highest value).

            ``inverse-sqrt-flat``: 1 up to w, then sqrt(w / n) (Raffel et al. 2020,
            arXiv:1910.10683, section 3.1.2: 1 / sqrt(max(n, w)), of which the learning rate
            is the highest value, 1 / sqrt(w)).

            ``constant``: 1.
        warmup: w, in updates.
        end: what the linear ones and ``cosine`` end at, as a part of the highest value.
    """

    name: Literal[
        "linear",
        "linear-jump",
        "linear-together",
        "cosine",
        "inverse-sqrt",
        "inverse-sqrt-flat",
        "constant",
    ] = "linear"
    warmup: int = 0
    end: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what means nothing.

        Raises:
            ValueError: a number is out of its range, or has no meaning in this schedule.
        """
        if self.warmup < 0:
            raise ValueError(f"warmup is {self.warmup}, and updates are counted from 0")
        if not 0 <= self.end <= 1:
            raise ValueError(f"end is {self.end}, which is no part of the highest rate: 0 to 1")
        if self.end and self.name not in _ENDED:
            raise ValueError(f"end is {self.end}, and the schedule {self.name} has no end: leave 0")
        if not self.warmup and self.name in _NEED_WARMUP:
            raise ValueError(f"the schedule {self.name} counts from its warmup, which is 0")


def rate(schedule: ScheduleSettings, step: int, total: int) -> float:
    """Return what the learning rate is multiplied by.

    Args:
        schedule: see there.
        step: the update, from 0 for the first.
        total: how many updates the run makes; from there on, the rate stays what it ends at.

    Returns:
        0 to 1.
    """
    return _SHAPES[schedule.name](schedule, step, total)


def _warm(schedule: ScheduleSettings, step: int) -> float:
    return step / schedule.warmup if step < schedule.warmup else 1.0


def _part(step: int, first: int, last: int) -> float:
    return 1.0 if step >= last else (step - first) / (last - first)


def _line(schedule: ScheduleSettings, step: int, first: int, last: int) -> float:
    return schedule.end + (1 - schedule.end) * (1 - _part(step, first, last))


def _linear(schedule: ScheduleSettings, step: int, total: int) -> float:
    if step < schedule.warmup:
        return _warm(schedule, step)
    return _line(schedule, step, schedule.warmup, total)


def _jump(schedule: ScheduleSettings, step: int, total: int) -> float:
    return _warm(schedule, step) if step < schedule.warmup else _line(schedule, step, 0, total)


def _together(schedule: ScheduleSettings, step: int, total: int) -> float:
    return _warm(schedule, step) * _line(schedule, step, 0, total)


def _cosine(schedule: ScheduleSettings, step: int, total: int) -> float:
    if step < schedule.warmup:
        return _warm(schedule, step)
    wave = 0.5 * (1 + math.cos(math.pi * _part(step, schedule.warmup, total)))
    return schedule.end + (1 - schedule.end) * wave


def _inverse(schedule: ScheduleSettings, step: int, total: int) -> float:
    return _warm(schedule, step) * _flat(schedule, step, total)


def _flat(schedule: ScheduleSettings, step: int, total: int) -> float:
    return math.sqrt(schedule.warmup / max(step, schedule.warmup))


def _constant(schedule: ScheduleSettings, step: int, total: int) -> float:
    return _warm(schedule, step)


_SHAPES: dict[str, Callable[[ScheduleSettings, int, int], float]] = {
    "linear": _linear,
    "linear-jump": _jump,
    "linear-together": _together,
    "cosine": _cosine,
    "inverse-sqrt": _inverse,
    "inverse-sqrt-flat": _flat,
    "constant": _constant,
}
