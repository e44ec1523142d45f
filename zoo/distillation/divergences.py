"""KL divergences of softened probabilities and of attention.

A cache of teacher outputs only holds the largest logits. Let p and q be the softened probabilities
of teacher and student, K the k classes held, and R all others. The loss is the divergence of the
distributions over K and R as one class,

    sum over i in K of p_i log(p_i / q_i) + p_R log(p_R / q_R).

It lacks p_R KL(p(. | R) || q(. | R)), which is never negative (chain rule of the relative entropy;
Cover and Thomas 2006, section 2.5): the loss is a lower bound of KL(p || q), and exact if R is
empty. Its derivative with respect to the student's logit i is q_i - p_i for i in K, and
q_i - p_R q_i / q_R in R.
"""

import math
from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from zoo.distillation.logits import (
    Target,
    TopLogits,
    as_loss,
    dense,
    lowest,
    pad_columns,
    softened,
)
from zoo.nn.row_chunks import Logits
from zoo.nn.row_sums import sum_over_rows


def kl_divergence(
    student: Logits, teachers: Sequence[Target], *, temperature: float, columns: int
) -> Tensor:
    """Return the sum over rows of KL(teacher || student) of softened probabilities."""
    # The probabilities of several teachers are averaged. With probabilities q of the student and p
    # of the teachers, the gradient with respect to the student's logits is (q - p) / temperature.
    # Only the first ``columns`` of (n, classes) count; the others pad a model's vocabulary.
    top = teachers[0]
    if isinstance(top, TopLogits):
        top_k = partial(_divergence_of_top_k, temperature=temperature, columns=top.columns)
        return sum_over_rows(top_k, student, top.values, top.classes, top.others[temperature])[0]
    all_classes = [logits for logits in teachers if not isinstance(logits, TopLogits)]
    loss = partial(_divergence_of_rows, temperature=temperature, columns=columns)
    return sum_over_rows(loss, student, *all_classes)[0]


def _divergence_of_rows(
    student: Tensor, *teachers: Tensor, temperature: float, columns: int
) -> tuple[Tensor, Tensor]:
    """Return the divergence, (1,), and its gradient with respect to the student's logits."""
    predicted, *targets = (
        softened(dense(logits, columns), temperature).log_softmax(-1)
        for logits in (student, *teachers)
    )
    target = targets[0]
    if len(targets) > 1:
        target = torch.stack(targets).logsumexp(0) - math.log(len(targets))
    total, errors = _divergence_and_errors(predicted, target)
    gradient = errors.div_(temperature)
    return as_loss(total[None], student), pad_columns(as_loss(gradient, student), student.shape[-1])


def _divergence_of_top_k(
    student: Tensor,
    values: Tensor,
    classes: Tensor,
    others: Tensor,
    *,
    temperature: float,
    columns: int,
) -> tuple[Tensor, Tensor]:
    """Return the divergence over k classes and the rest as one class, (1,), and its gradient."""
    logits = softened(dense(student, columns), temperature)
    least = lowest(logits.dtype)
    remaining = logits.scatter(-1, classes, -math.inf)
    remainder = remaining.logsumexp(-1, keepdim=True).clamp_(min=least)
    predicted = torch.cat([logits.gather(-1, classes), remainder], -1).log_softmax(-1)
    teacher_logits = softened(values, temperature).to(predicted.dtype)
    teacher_remainder = others[:, None].to(predicted.dtype).clamp(min=least)
    target = torch.cat([teacher_logits, teacher_remainder], -1).log_softmax(-1)
    total, errors = _divergence_and_errors(predicted, target)
    errors.div_(temperature)
    shares = (logits - remainder).clamp_(max=0).exp_()  # The scatter replaces the k classes.
    gradient = shares.mul_(errors[:, -1:]).scatter_(-1, classes, errors[:, :-1])
    return as_loss(total[None], student), pad_columns(as_loss(gradient, student), student.shape[-1])


def _divergence_and_errors(predicted: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Return the sum over rows of KL(p || q), and q - p, from log q and log p, (n, classes)."""
    # Both arguments are overwritten.
    total = F.kl_div(predicted, target, reduction="sum", log_target=True)
    errors = predicted.exp_().sub_(target.exp_())
    # The sum of q - p is 0 but for rounding. With it, each class adds p (exp(r) - 1 - r) with
    # r = log(q / p): never negative, and quadratic in the rounding errors of r.
    return total + errors.sum(), errors


def attention_divergence(student: Tensor, teacher: Tensor, pairs: Tensor) -> Tensor:
    """Return the sum over queries and heads of KL(teacher || student) of their attention."""
    # Scores before the softmax are (rows, heads, tokens, tokens). ``pairs`` tells which keys each
    # query may attend to, (rows, 1, tokens, tokens), bool.
    predicted = _attention_log_probabilities(student, pairs)
    target = _attention_log_probabilities(teacher, pairs)
    divergence = F.kl_div(predicted, target, reduction="none", log_target=True)
    is_query = pairs.any(-1, keepdim=True)  # Padding attends to nothing, and does not count.
    return divergence.masked_fill(~is_query, 0).sum()


def _attention_log_probabilities(scores: Tensor, pairs: Tensor) -> Tensor:
    # The mask is never derived from values: a low score is not necessarily padding.
    values = as_loss(scores, scores)
    return values.masked_fill(~pairs, lowest(values.dtype)).log_softmax(-1)
