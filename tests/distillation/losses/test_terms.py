"""Loss terms against formulas written out in float64."""

import math
from decimal import Decimal, localcontext
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from tests.distillation.losses.making import DOUBLE, kl_by_hand
from zoo.distillation.divergences import kl_divergence
from zoo.distillation.logits import top_logits
from zoo.distillation.losses.attention_kl import AttentionKL
from zoo.distillation.losses.attention_mse import AttentionMSE
from zoo.distillation.losses.first_token_mse import FirstTokenMSE
from zoo.distillation.losses.hidden_cosine import HiddenCosine
from zoo.distillation.losses.hidden_mse import HiddenMSE
from zoo.distillation.losses.relations import relation_scores
from zoo.nn import row_chunks
from zoo.nn.heads import VocabularyProjection


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("temperature", [1.0, 2.0, 10.0])
def test_the_divergence_is_that_of_softened_probabilities(temperature: float) -> None:
    student, teacher = torch.randn(2, 5, 7, dtype=DOUBLE)
    total = kl_divergence(student, [teacher], temperature=temperature, columns=7)
    assert float(total) == pytest.approx(kl_by_hand(student, teacher, temperature), rel=1e-12)


def exact_divergence(student: Tensor, teacher: Tensor, temperature: float) -> tuple[Any, Any]:
    """Return T² KL(teacher || student) of each row and its gradient, computed with 50 digits."""
    values, gradients, t = [], [], Decimal(temperature)
    with localcontext() as context:
        context.prec = 50
        for mine, other in zip(student.tolist(), teacher.tolist(), strict=True):
            p, q = ([(Decimal(z) / t).exp() for z in row] for row in (other, mine))
            p, q = ([x / sum(row) for x in row] for row in (p, q))
            pairs = list(zip(p, q, strict=True))
            values.append(float(sum(a * (a / b).ln() for a, b in pairs) * t**2))
            gradients.append([float((b - a) * t) for a, b in pairs])
    return torch.tensor(values, dtype=DOUBLE), torch.tensor(gradients, dtype=DOUBLE)


@pytest.mark.parametrize("temperature", [1.0, 3.0, 10.0, 11.0, 100.0, 1e3, 1e4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("noise", [1.0, 0.05])
def test_the_divergence_is_exact_at_all_temperatures(
    temperature: float, dtype: torch.dtype, noise: float
) -> None:
    teacher = 3 * torch.randn(4, 30)
    student = (teacher + noise * torch.randn(4, 30)).to(dtype).requires_grad_()
    values, gradient = exact_divergence(student.detach(), teacher, temperature)
    total = kl_divergence(student, [teacher], temperature=temperature, columns=30)
    (by_logits,) = torch.autograd.grad(total, student)
    assert total.dtype == torch.float32
    assert float(total.detach()) * temperature**2 == pytest.approx(
        float(values.sum()), rel=1e-4, abs=2e-5
    )
    error = (by_logits.double() * temperature**2 - gradient).abs().max()
    digits = 1e-2 if dtype == torch.bfloat16 else 1e-4  # of the gradient, in its dtype
    assert error <= digits * gradient.abs().max()


@given(
    temperature=st.floats(0.1, 1e4),
    noise=st.sampled_from([0.0, 1e-6, 1e-2, 1.0, 30.0]),
    classes=st.integers(2, 40),
    seed=st.integers(0, 1000),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
    teachers=st.integers(1, 3),
)
def test_the_divergence_is_not_negative(
    temperature: float, noise: float, classes: int, seed: int, dtype: torch.dtype, teachers: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = 5 * torch.randn(1, 4, classes, generator=generator)
    logits = logits + noise * torch.randn(teachers + 1, 4, classes, generator=generator)
    student, *others = logits.to(dtype)
    options: dict[str, Any] = {"temperature": temperature, "columns": classes}
    total = kl_divergence(student, others, **options)
    top = top_logits(others[0], max(1, classes // 2), columns=classes, temperatures=(temperature,))
    lower = kl_divergence(student, [top], temperature=temperature, columns=classes)
    # float64 above a temperature of 10, float32 below
    rounding = 1e-6 if temperature <= 10 else 1e-14
    assert float(total) >= -rounding
    assert float(lower) >= -max(rounding, 1e-9 / temperature)  # the sum of the others is float32
    assert float(total) < math.inf


def test_choices_that_only_one_model_excludes_have_finite_gradients() -> None:
    student, teacher = torch.randn(2, 3, 4)
    student[:, 3] = -math.inf
    student.requires_grad_()
    for temperature in (1.0, 100.0):
        total = kl_divergence(student, [teacher], temperature=temperature, columns=4)
        (gradient,) = torch.autograd.grad(total, student)
        assert bool(gradient.isfinite().all())


def test_padding_of_the_larger_vocabulary_does_not_count() -> None:
    student, teacher = torch.randn(4, 9, dtype=DOUBLE), torch.randn(4, 7, dtype=DOUBLE)
    total = kl_divergence(student, [teacher], temperature=2.0, columns=7)
    assert float(total) == pytest.approx(kl_by_hand(student[:, :7], teacher, 2.0), rel=1e-12)


def test_probabilities_of_several_teachers_are_averaged() -> None:
    student, first, second = torch.randn(3, 4, 6, dtype=DOUBLE)
    total = kl_divergence(student, [first, second], temperature=1.0, columns=6)
    mean = ((first.softmax(-1) + second.softmax(-1)) / 2).log()
    assert float(total) == pytest.approx(kl_by_hand(student, mean, 1.0), rel=1e-12)


def test_absent_choices_add_nothing() -> None:
    student, teacher = torch.randn(2, 3, 4, dtype=DOUBLE)
    student[:, 3] = teacher[:, 3] = -math.inf
    total = kl_divergence(student, [teacher], temperature=2.0, columns=4)
    assert float(total) == pytest.approx(kl_by_hand(student[:, :3], teacher[:, :3], 2.0), rel=1e-9)


def test_the_divergence_in_parts_has_the_same_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    weight, bias = torch.randn(11, 3, dtype=DOUBLE), torch.randn(11, dtype=DOUBLE)
    other = VocabularyProjection(torch.randn(8, 3, dtype=DOUBLE), weight.clone() * 2, bias)
    hidden = torch.randn(8, 3, dtype=DOUBLE)
    gradients, totals = [], []
    for limit in (1 << 26, 22):  # all logits at once, and two rows at a time
        monkeypatch.setattr(row_chunks, "LOGITS_AT_ONCE", limit)
        leaves = [tensor.clone().requires_grad_() for tensor in (hidden, weight, bias)]
        total = kl_divergence(VocabularyProjection(*leaves), [other], temperature=2.0, columns=10)
        total.backward()  # type: ignore[no-untyped-call]
        totals.append(float(total.detach()))
        gradients.append([leaf.grad for leaf in leaves])
    by_hand = kl_by_hand((hidden @ weight.T + bias)[:, :10], other.logits()[:, :10], 2.0)
    assert totals == pytest.approx([by_hand, by_hand], rel=1e-10)
    for first, second in zip(*gradients, strict=True):
        torch.testing.assert_close(first, second, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("limit", [1, 20, 1 << 18])  # one row, two rows, and all rows at a time
def test_the_gradient_of_the_divergence_is_that_of_torch(
    monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setattr(row_chunks, "LOGITS_IN_CACHE", limit)
    student, first, second = torch.randn(3, 5, 10, dtype=DOUBLE)
    student.requires_grad_()
    softened = [logits[:, :8] / 3.0 for logits in (student, first, second)]
    target = (softened[1].softmax(-1) + softened[2].softmax(-1)) / 2
    plain = functional.kl_div(softened[0].log_softmax(-1), target, reduction="sum")
    total = kl_divergence(student, [first, second], temperature=3.0, columns=8)
    torch.testing.assert_close(total, plain, rtol=1e-12, atol=0)
    expected, gradient = (torch.autograd.grad(7 * loss, student)[0] for loss in (plain, total))
    torch.testing.assert_close(gradient, expected, rtol=1e-10, atol=1e-15)


def test_a_second_backward_pass_is_refused() -> None:
    student, teacher = torch.randn(2, 3, 4)
    total = kl_divergence(student.requires_grad_(), [teacher], temperature=2.0, columns=4)
    torch.autograd.grad(total, student, retain_graph=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(total, student)


def test_distances_of_states() -> None:
    student, teacher = torch.randn(2, 6, 5, dtype=DOUBLE)
    error = sum((a - b) ** 2 for a, b in zip(student.flatten(), teacher.flatten(), strict=True))
    assert float(HiddenMSE.distance(student, teacher)) == pytest.approx(float(error), rel=1e-12)
    # the loss of Sanh et al. with a target of 1
    loss = torch.nn.CosineEmbeddingLoss(reduction="sum")(student, teacher, torch.ones(6))
    assert float(HiddenCosine.distance(student, teacher)) == pytest.approx(float(loss), rel=1e-12)
    lengths = [x / x.norm(dim=-1, keepdim=True) for x in (student, teacher)]
    patient = float(((lengths[0] - lengths[1]) ** 2).sum())
    assert float(FirstTokenMSE.distance(student, teacher)) == pytest.approx(patient)


@pytest.fixture
def pairs() -> Tensor:
    """Two rows: one of 4 tokens, one of 3 and padding."""
    real = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]]).bool()
    return real[:, None, :, None] & real[:, None, None, :]


def test_low_scores_are_not_mistaken_for_padding(pairs: Tensor) -> None:
    """A threshold on values, as some implementations have, would make this loss 0."""
    student, teacher = torch.full((2, 3, 4, 4), -500.0), torch.full((2, 3, 4, 4), -400.0)
    error = AttentionMSE.distance(student, teacher, pairs)
    assert float(error) == (16 + 9) * 3 * 100.0**2


def test_padding_adds_nothing_to_terms_over_attention(pairs: Tensor) -> None:
    student, teacher = torch.randn(2, 2, 3, 4, 4, dtype=DOUBLE)
    changed = torch.where(pairs, student, torch.full_like(student, 1e4))
    for function in (AttentionMSE.distance, AttentionKL.distance):
        assert float(function(changed, teacher, pairs)) == pytest.approx(
            float(function(student, teacher, pairs)), rel=1e-12
        )


def test_the_divergence_of_attention(pairs: Tensor) -> None:
    student, teacher = torch.randn(2, 2, 3, 4, 4, dtype=DOUBLE)
    by_hand = sum(
        kl_by_hand(student[row, head, :n, :n], teacher[row, head, :n, :n], 1.0)
        for row, n in ((0, 4), (1, 3))
        for head in range(3)
    )
    total = float(AttentionKL.distance(student, teacher, pairs))
    assert total == pytest.approx(by_hand, rel=1e-10)


def test_relations_are_products_of_vectors_split_anew() -> None:
    """Wang et al. 2021, equations 3 to 5, of 2 attention heads as 4 relation heads."""
    vectors = torch.randn(1, 2, 3, 8, dtype=DOUBLE)
    scores = relation_scores(vectors, 4)
    whole = torch.cat([vectors[0, 0], vectors[0, 1]], dim=-1)  # (tokens, 16)
    for head in range(4):
        part = whole[:, 4 * head : 4 * head + 4]
        torch.testing.assert_close(scores[0, head], part @ part.T / 2.0, rtol=1e-12, atol=0)
