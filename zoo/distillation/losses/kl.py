"""KL divergence of softened probabilities (Hinton et al. 2015, arXiv:1503.02531, section 2).

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
from typing import ClassVar

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
from zoo.distillation.losses.base import (
    LogitRows,
    LogitsLoss,
    LogitsSettings,
    LossSettings,
    Substitute,
)
from zoo.distillation.outputs import ModelOutput, TeacherLogits, TeacherOutput
from zoo.errors import UsageError
from zoo.nn.kernels.row_chunks import Logits
from zoo.nn.kernels.row_sums import sum_over_rows
from zoo.overrides import override

WITHOUT_PROBABILITIES = ("regression", "multi_label_classification")  # problem types
# Divergences are exact there; at higher temperatures they are squared errors of logits.
LOWEST_TEMPERATURE = 1e-4
HIGHEST_TEMPERATURE = 1e4


class KLSettings(LogitsSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of ``kl``."""

    temperature: float = 1.0  # The number that logits are divided by.
    # Multiply by the square of the temperature, so that the size of the gradients does not depend
    # on it (Hinton et al. 2015, arXiv:1503.02531, section 2).
    scale_by_temperature: bool = True

    def __post_init__(self) -> None:
        if not LOWEST_TEMPERATURE <= self.temperature <= HIGHEST_TEMPERATURE:
            raise ValueError(
                f"temperature is {self.temperature}, not from {LOWEST_TEMPERATURE:g} to "
                f"{HIGHEST_TEMPERATURE:g}; the limit of high temperatures is the kind logits-mse"
            )


class KLDivergence(LogitsLoss):
    """KL(teacher || student) of softened probabilities."""

    name: ClassVar[str] = "kl"
    summary: ClassVar[str] = "divergence of softened probabilities"
    settings_type: ClassVar[type[LossSettings]] = KLSettings
    settings: KLSettings

    @override
    @classmethod
    def substitute(cls, problem: str | None) -> Substitute | None:
        """Outputs that are not probabilities are compared by their squared error."""
        if problem in WITHOUT_PROBABILITIES:
            return Substitute("logits-mse", term_name="logits")
        return None

    def __post_init__(self) -> None:
        super().__post_init__()
        if getattr(self.objective, "problem", None) in WITHOUT_PROBABILITIES:
            raise UsageError(
                f"terms.{self.term_name}: kl compares probabilities of classes, and "
                f"{self.objective.name} has none",
                f"--set distillation.terms.{self.term_name}.kind=logits-mse compares the outputs",
            )

    @property
    @override
    def teacher_output(self) -> TeacherOutput | None:
        return TeacherLogits(
            self.logits_of, everywhere=self.everywhere, temperature=self.settings.temperature
        )

    @override
    def distance(self, rows: LogitRows) -> Tensor:
        temperature = self.settings.temperature
        total = kl_divergence(
            rows.student, rows.teachers, temperature=temperature, columns=rows.columns
        )
        return total * temperature**2 if self.settings.scale_by_temperature else total

    @override
    def metrics(self, teachers: Sequence[ModelOutput]) -> dict[str, tuple[Tensor, Tensor]]:
        logits = teachers[0].logits(self.logits_of, everywhere=self.everywhere)
        if not isinstance(logits, TopLogits):
            return {}
        lost = logits.lost_probability(self.settings.temperature)
        return {f"{self.term_name}-lost-probability": (lost.sum(), lost.new_tensor(len(lost)))}


def kl_divergence(
    student: Logits, teachers: Sequence[Target], *, temperature: float, columns: int
) -> Tensor:
    """Return the sum over rows of KL(teacher || student) of softened probabilities."""
    # The probabilities of several teachers are averaged. With probabilities q of the student and p
    # of the teachers, the gradient with respect to the student's logits is (q - p) / temperature.
    # Only the first ``columns`` of (n, classes) count; the others pad a model's vocabulary.
    if isinstance(top := teachers[0], TopLogits):
        top_k = partial(_divergence_of_top_k, temperature=temperature, columns=top.columns)
        return sum_over_rows(top_k, student, top.values, top.classes, top.others[temperature])[0]
    whole = [logits for logits in teachers if not isinstance(logits, TopLogits)]
    loss = partial(_divergence_of_rows, temperature=temperature, columns=columns)
    return sum_over_rows(loss, student, *whole)[0]


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
    rest = logits.scatter(-1, classes, -math.inf).logsumexp(-1, keepdim=True).clamp_(min=least)
    predicted = torch.cat([logits.gather(-1, classes), rest], -1).log_softmax(-1)
    known = softened(values, temperature).to(predicted.dtype)
    rest_of_teacher = others[:, None].to(predicted.dtype).clamp(min=least)
    target = torch.cat([known, rest_of_teacher], -1).log_softmax(-1)
    total, errors = _divergence_and_errors(predicted, target)
    errors.div_(temperature)
    within_rest = (logits - rest).clamp_(max=0).exp_()  # the scatter replaces the k classes
    gradient = within_rest.mul_(errors[:, -1:]).scatter_(-1, classes, errors[:, :-1])
    return as_loss(total[None], student), pad_columns(as_loss(gradient, student), student.shape[-1])


def _divergence_and_errors(predicted: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Return the sum over rows of KL(p || q), and q - p, from log q and log p, (n, classes)."""
    # Both arguments are overwritten.
    total = F.kl_div(predicted, target, reduction="sum", log_target=True)
    errors = predicted.exp_().sub_(target.exp_())
    # The sum of q - p is 0 but for rounding. With it, each class adds p (exp(r) - 1 - r) with
    # r = log(q / p): never negative, and quadratic in the rounding errors of r.
    return total + errors.sum(), errors
