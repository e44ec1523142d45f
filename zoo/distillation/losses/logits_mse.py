"""Squared differences of logits."""

import math
from typing import TYPE_CHECKING, ClassVar

from zoo.distillation.losses.base import LogitRows, LogitsLoss, squared_error
from zoo.overrides import override

if TYPE_CHECKING:
    from torch import Tensor


class LogitsMSE(LogitsLoss):
    """Squared differences of logits, from one teacher or from the mean of several."""

    name: ClassVar[str] = "logits-mse"
    summary: ClassVar[str] = "squared differences of logits"

    @override
    def distance(self, rows: LogitRows) -> "Tensor":
        logits = rows.teacher_logits()
        teacher = sum(logits[1:], logits[0]) / len(logits)
        absent = teacher == -math.inf  # Such as the choices that a question lacks.
        student = rows.student_logits().masked_fill(absent, 0)
        return squared_error(student, teacher.masked_fill(absent, 0))
