"""Squared differences of logits."""

import math
from collections.abc import Sequence

from torch import Tensor

from zoo.distillation.logits import Target, TopLogits, dense
from zoo.distillation.losses.base import LogitsLoss, distillation_loss, squared_error
from zoo.nn.kernels.row_chunks import Logits
from zoo.overrides import override


@distillation_loss("logits-mse")
class LogitsMSE(LogitsLoss):
    """Squared differences of logits, from one teacher or from the mean of several."""

    @override
    def distance(self, student: Logits, teachers: Sequence[Target], columns: int) -> Tensor:
        values = [
            dense(target, columns) for target in teachers if not isinstance(target, TopLogits)
        ]
        teacher = sum(values[1:], values[0]) / len(values)
        absent = teacher == -math.inf  # such as the choices that a question lacks
        logits = dense(student, columns).masked_fill(absent, 0)
        return squared_error(logits, teacher.masked_fill(absent, 0))
