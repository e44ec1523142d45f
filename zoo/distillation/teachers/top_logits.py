"""The largest logits of a teacher, and a loss term over them.

Let p and q be the softened probabilities of teacher and student, K the k classes with the teacher's
largest logits, and R all others. KL(p || q) is the sum of the divergence of the coarser
distributions over the k classes and R as one class,

    sum over i in K of p_i log(p_i / q_i) + p_R log(p_R / q_R),

which is computed here, and of p_R KL(p(. | R) || q(. | R)), which is not: how the teacher's other
probability is spread. It is never negative (chain rule of the relative entropy; Cover and Thomas
2006, section 2.5), so that this term is a lower bound, and equal where all classes are held. The
derivative by the student's logit i is q_i - p_i for i in K, and q_i - p_R q_i / q_R in R. R may be
empty: its probability is 0 then.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import torch
from torch import Tensor

from zoo.distillation.losses.terms import (
    as_loss,
    dense,
    divergence_and_errors,
    kl_divergence,
    lowest,
    pad_columns,
    softened,
    width,
)
from zoo.objectives.losses.row_chunks import Logits, chunks, logits_of_rows
from zoo.objectives.losses.row_sums import sum_over_rows


@dataclass(frozen=True)
class TopLogits:
    """The k largest logits of each of n rows.

    Attributes:
        values: the logits, (n, k), float32.
        classes: their classes, (n, k), int64.
        others: temperature -> logarithm of the sum of exp(z / temperature) over all other logits z,
            (n,), float32.
        columns: number of classes.
    """

    values: Tensor
    classes: Tensor
    others: Mapping[float, Tensor]
    columns: int

    def lost_probability(self, temperature: float) -> Tensor:
        """Return the probability of the other classes, (n,)."""
        inside = (self.values / temperature).logsumexp(-1)
        return (self.others[temperature] - inside).sigmoid()


Target: TypeAlias = Logits | TopLogits


def number_of_classes(logits: Target) -> int:
    """Return the number of classes of a model."""
    return logits.columns if isinstance(logits, TopLogits) else width(logits)


def divergence(
    student: Logits, teachers: Sequence[Target], *, temperature: float, columns: int
) -> Tensor:
    """Return ``kl_divergence``, or ``top_k_divergence`` of the largest logits of one teacher."""
    if isinstance(teachers[0], TopLogits):
        return top_k_divergence(student, teachers[0], temperature=temperature)
    whole = [logits for logits in teachers if not isinstance(logits, TopLogits)]
    return kl_divergence(student, whole, temperature=temperature, columns=columns)


def top_logits(
    logits: Logits, k: int, *, columns: int, temperatures: tuple[float, ...]
) -> TopLogits:
    """Return the largest logits of each row, for some rows at a time where there are many.

    Args:
        logits: (n, classes), or the projection to them.
        k: number of logits per row.
        columns: number of classes that count; later ones are padding of the vocabulary.
        temperatures: temperatures at which the others are summed.
    """
    rows = len(logits if isinstance(logits, Tensor) else logits.hidden)
    pieces = [
        _top_logits(dense(logits_of_rows(logits, part), columns), k, temperatures)
        for part in chunks(rows, width(logits))
    ]
    values, classes, others = zip(*pieces, strict=True)
    return TopLogits(
        torch.cat(values),
        torch.cat(classes),
        {t: torch.cat([part[t] for part in others]) for t in temperatures},
        columns,
    )


def _top_logits(
    logits: Tensor, k: int, temperatures: tuple[float, ...]
) -> tuple[Tensor, Tensor, dict[float, Tensor]]:
    values, classes = logits.topk(k)
    rest = logits.scatter(-1, classes, -math.inf)
    sums = {t: softened(rest, t).logsumexp(-1).to(logits.dtype) for t in temperatures}
    return values, classes, sums


def top_k_divergence(student: Logits, teacher: TopLogits, *, temperature: float) -> Tensor:
    """Return the sum over rows of KL(teacher || student) over k classes and the rest as one.

    Args:
        student: logits, (n, classes), or the projection to them.
        teacher: largest logits of the teacher, at a temperature of its ``others``.
        temperature: number that logits are divided by.
    """
    target = teacher.values, teacher.classes, teacher.others[temperature]
    loss = partial(_divergence_of_rows, temperature=temperature, columns=teacher.columns)
    return sum_over_rows(loss, student, *target)[0]


def _divergence_of_rows(
    student: Tensor,
    values: Tensor,
    classes: Tensor,
    others: Tensor,
    *,
    temperature: float,
    columns: int,
) -> tuple[Tensor, Tensor]:
    """Return the divergence over k classes and the rest, (1,), and its gradient by the logits."""
    logits = softened(dense(student, columns), temperature)
    least = lowest(logits.dtype)
    rest = logits.scatter(-1, classes, -math.inf).logsumexp(-1, keepdim=True).clamp_(min=least)
    predicted = torch.cat([logits.gather(-1, classes), rest], -1).log_softmax(-1)
    known = softened(values, temperature).to(predicted.dtype)
    beside = others[:, None].to(predicted.dtype).clamp(min=least)
    target = torch.cat([known, beside], -1).log_softmax(-1)
    total, errors = divergence_and_errors(predicted, target)
    errors.div_(temperature)
    within_rest = (logits - rest).clamp_(max=0).exp_()  # of other classes, the scatter replaces it
    gradient = within_rest.mul_(errors[:, -1:]).scatter_(-1, classes, errors[:, :-1])
    return as_loss(total[None], student), pad_columns(as_loss(gradient, student), student.shape[-1])
