"""Sums of the loss terms that compare a student with its teacher, as functions of tensors.

Each returns the sum over what the arguments hold; the caller divides by the count of the whole
step, as for all loss terms (``zoo.objectives.base``). A teacher's tensors have no gradient. Masks
are those of the batch and are never derived from values: scores may be low without being padding.
"""

import math
from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from zoo.objectives.losses.row_chunks import Logits, all_logits
from zoo.objectives.losses.row_sums import sum_over_rows

# above it, probabilities differ by so little that float32 rounds the differences to a few digits
HIGHEST_FLOAT32_TEMPERATURE = 10.0


def kl_divergence(
    student: Logits, teachers: Sequence[Logits], *, temperature: float, columns: int
) -> Tensor:
    """Return the sum over rows of KL(teacher || student) of softened probabilities.

    With z / T for logits z and temperature T (Hinton et al. 2015, arXiv:1503.02531, section 2).
    The probabilities of several teachers are averaged. The gradient by the student's logits is
    (q - p) / T for the probabilities q of the student and p of the teachers.

    Args:
        student: logits, (n, classes), or the projection to them.
        teachers: logits of the teachers, likewise.
        temperature: number that logits are divided by.
        columns: number of classes that all models have; later ones are padding of the vocabulary.
    """
    loss = partial(_kl_of_rows, temperature=temperature, columns=columns)
    return sum_over_rows(loss, student, *teachers)[0]


def width(logits: Logits) -> int:
    """Return the number of classes."""
    return logits.shape[-1] if isinstance(logits, Tensor) else len(logits.weight)


def dense(logits: Logits, columns: int) -> Tensor:
    """Return the first logits of each row, (n, columns), at least float32."""
    values = all_logits(logits)
    return values[..., :columns].to(torch.promote_types(values.dtype, torch.float32))


def _kl_of_rows(
    student: Tensor, *teachers: Tensor, temperature: float, columns: int
) -> tuple[Tensor, Tensor]:
    """Return the divergence, (1,), and its gradient by the student's logits."""
    predicted, *targets = (
        softened(dense(logits, columns), temperature).log_softmax(-1)
        for logits in (student, *teachers)
    )
    target = targets[0]
    if len(targets) > 1:
        target = torch.stack(targets).logsumexp(0) - math.log(len(targets))
    total, errors = divergence_and_errors(predicted, target)
    gradient = errors.div_(temperature)
    return as_loss(total[None], student), pad_columns(as_loss(gradient, student), student.shape[-1])


def softened(logits: Tensor, temperature: float) -> Tensor:
    """Return logits divided by a temperature, finite also for minus infinity.

    They are float64 above ``HIGHEST_FLOAT32_TEMPERATURE``: a divergence is proportional to 1 / T²,
    and the rounding errors of log-probabilities do not depend on T.
    """
    values = logits.double() if temperature > HIGHEST_FLOAT32_TEMPERATURE else logits
    return (values / temperature).clamp(min=lowest(values.dtype))


def divergence_and_errors(predicted: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Return the sum over rows of KL(p || q), and q - p, in place of both arguments.

    The differences q - p, whose sum is 0 but for rounding, are added: each class then has a share
    p (exp(r) - 1 - r), for r = log(q / p), which is never negative, and in which the rounding
    errors of r count with their squares.

    Args:
        predicted: log q, (n, classes), normalized.
        target: log p, likewise.
    """
    total = F.kl_div(predicted, target, reduction="sum", log_target=True)
    errors = predicted.exp_().sub_(target.exp_())
    return total + errors.sum(), errors


def as_loss(values: Tensor, logits: Tensor) -> Tensor:
    """Return values in the dtype of a loss of logits, at least float32."""
    return values.to(torch.promote_types(logits.dtype, torch.float32))


def pad_columns(values: Tensor, columns: int) -> Tensor:
    """Return values followed by zeros, (n, columns), for classes that do not count."""
    missing = columns - values.shape[-1]
    return F.pad(values, (0, missing)) if missing else values  # without a copy


def lowest(dtype: torch.dtype) -> float:
    """Return a number whose exponential is 0, in place of minus infinity.

    A quarter of the lowest finite number: its difference from the largest logit of a row and from
    another log-probability remains finite.
    """
    return torch.finfo(dtype).min / 4


def squared_error(student: Tensor, teacher: Tensor) -> Tensor:
    """Return the sum of squared differences of two tensors of one shape."""
    return F.mse_loss(student, teacher, reduction="sum")


def logits_error(student: Tensor, teacher: Tensor) -> Tensor:
    """Return the sum of squared differences of logits, (n, classes) each.

    Logits of minus infinity, such as those of choices that a question lacks, do not count.
    """
    absent = teacher == -math.inf
    return squared_error(student.masked_fill(absent, 0), teacher.masked_fill(absent, 0))


def cosine_distance(student: Tensor, teacher: Tensor) -> Tensor:
    """Return the sum over rows of 1 - cos(student, teacher), of (n, width) each."""
    return (1 - F.cosine_similarity(student, teacher, dim=-1)).sum()


def normalized_squared_error(student: Tensor, teacher: Tensor) -> Tensor:
    """Return the sum of squared differences of vectors of length 1, of (n, width) each."""
    return squared_error(F.normalize(student, dim=-1), F.normalize(teacher, dim=-1))


def attention_scores_error(student: Tensor, teacher: Tensor, pairs: Tensor) -> Tensor:
    """Return the sum of squared differences of attention scores before the softmax.

    Args:
        student: scores, (rows, heads, tokens, tokens).
        teacher: scores, of the same shape.
        pairs: which keys each query may attend to, (rows, 1, tokens, tokens), bool. Others do not
            count.
    """
    excluded = ~pairs
    return squared_error(student.masked_fill(excluded, 0), teacher.masked_fill(excluded, 0))


def attention_divergence(student: Tensor, teacher: Tensor, pairs: Tensor) -> Tensor:
    """Return the sum over queries and heads of KL(teacher || student) of attention probabilities.

    Args:
        student: scores before the softmax, (rows, heads, tokens, tokens).
        teacher: scores, of the same shape.
        pairs: which keys each query may attend to, (rows, 1, tokens, tokens), bool. A query without
            any is padding, and does not count.
    """
    queries = pairs.any(-1, keepdim=True)
    predicted, target = (
        scores.masked_fill(~pairs, lowest(scores.dtype)).log_softmax(-1)
        for scores in (as_loss(student, student), as_loss(teacher, teacher))
    )
    divergence = F.kl_div(predicted, target, reduction="none", log_target=True)
    return divergence.masked_fill(~queries, 0).sum()


def relation_scores(vectors: Tensor, heads: int) -> Tensor:
    """Return the scaled products of the vectors of tokens with each other, by relation head.

    The vectors of all attention heads are concatenated and split anew, so that models with other
    numbers of heads can be compared (Wang et al. 2021, arXiv:2012.15828, section 3.1).

    Args:
        vectors: queries, keys or values, (rows, attention heads, tokens, head width).
        heads: number of relation heads, which divides the width of all heads together.

    Returns:
        (rows, heads, tokens, tokens).
    """
    rows, _, tokens, _ = vectors.shape
    split = vectors.transpose(1, 2).reshape(rows, tokens, heads, -1).transpose(1, 2)
    scores: Tensor = split @ split.transpose(-1, -2) / split.shape[-1] ** 0.5
    return scores
