"""The term over a teacher's largest logits against formulas written out in float64."""

import math

import pytest
import torch
from torch import Tensor

from tests.distillation.losses.making import DOUBLE, kl_by_hand
from zoo.distillation.divergences import kl_divergence
from zoo.distillation.logits import top_logits
from zoo.nn import row_chunks
from zoo.nn.heads import VocabularyProjection


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def grouped_by_hand(student: Tensor, teacher: Tensor, k: int, temperature: float) -> float:
    """Return the divergence over the k largest of the teacher and the sum of all others."""
    total = 0.0
    for mine, other in zip(student.tolist(), teacher.tolist(), strict=True):
        p, q = ([math.exp(z / temperature) for z in row] for row in (other, mine))
        p, q = ([x / sum(row) for x in row] for row in (p, q))
        largest = sorted(range(len(p)), key=lambda i: -p[i])[:k]
        for row in (p, q):
            row.append(1 - sum(row[i] for i in largest))
        total += sum(p[i] * math.log(p[i] / q[i]) for i in (*largest, len(p) - 1))
    return total


@pytest.mark.parametrize("temperature", [1.0, 4.0])
def test_all_other_classes_are_one(temperature: float) -> None:
    student, teacher = 3 * torch.randn(2, 5, 9, dtype=DOUBLE)
    top = top_logits(teacher, 3, columns=9, temperatures=(temperature,))
    total = kl_divergence(student, [top], temperature=temperature, columns=top.columns)
    by_hand = grouped_by_hand(student, teacher, 3, temperature)
    assert float(total) == pytest.approx(by_hand, rel=1e-12)
    assert 0 < by_hand < kl_by_hand(student, teacher, temperature)


def test_of_all_but_one_class_nothing_is_lost() -> None:
    """One class alone can be spread in one way."""
    student, teacher = torch.randn(2, 5, 9, dtype=DOUBLE)
    top = top_logits(teacher, 8, columns=9, temperatures=(2.0,))
    total = kl_divergence(student, [top], temperature=2.0, columns=top.columns)
    assert float(total) == pytest.approx(kl_by_hand(student, teacher, 2.0), rel=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("temperature", [1.0, 2.0, 1000.0])
def test_of_all_classes_the_term_is_the_whole_divergence(
    temperature: float, dtype: torch.dtype
) -> None:
    teacher, student = torch.randn(5, 9), torch.randn(5, 11).to(dtype).requires_grad_()
    top = top_logits(teacher, 9, columns=9, temperatures=(temperature,))
    assert top.lost_probability(temperature).tolist() == [0.0] * 5
    total = kl_divergence(student, [top], temperature=temperature, columns=top.columns)
    whole = kl_divergence(student, [teacher], temperature=temperature, columns=9)
    torch.testing.assert_close(total, whole, rtol=1e-5, atol=0)
    mine, other = (torch.autograd.grad(loss, student)[0] for loss in (total, whole))
    torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-7)


def test_choices_that_are_absent_among_the_others() -> None:
    student, teacher = torch.randn(2, 3, 5)
    student[:, 3:] = teacher[:, 3:] = -math.inf
    student.requires_grad_()
    top = top_logits(teacher, 3, columns=5, temperatures=(1.0,))
    total = kl_divergence(student, [top], temperature=1.0, columns=top.columns)
    by_hand = kl_by_hand(student.detach()[:, :3], teacher[:, :3], 1.0)
    assert float(total.detach()) == pytest.approx(by_hand, rel=1e-5)
    (gradient,) = torch.autograd.grad(total, student)
    expected = student.detach().softmax(-1) - teacher.softmax(-1)
    torch.testing.assert_close(gradient, expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("temperature", [100.0, 1000.0])
def test_high_temperatures(temperature: float) -> None:
    teacher = 3 * torch.randn(6, 40)
    student = teacher + torch.randn(6, 40)
    top = top_logits(teacher, 10, columns=40, temperatures=(temperature,))
    total = float(kl_divergence(student, [top], temperature=temperature, columns=top.columns))
    exact = grouped_by_hand(student.double(), teacher.double(), 10, temperature)
    assert total == pytest.approx(exact, rel=1e-3)


def test_the_gradient_is_the_derived_one() -> None:
    student, teacher = torch.randn(2, 1, 7, dtype=DOUBLE)
    top = top_logits(teacher, 2, columns=7, temperatures=(1.0,))
    student.requires_grad_()
    kl_divergence(student, [top], temperature=1.0, columns=top.columns).backward()  # type: ignore[no-untyped-call]
    assert student.grad is not None
    p, q = teacher.softmax(-1)[0], student.detach().softmax(-1)[0]
    inside = p.argsort(descending=True)[:2].tolist()
    rest = [i for i in range(7) if i not in inside]
    scale = 1 - p[rest].sum() / q[rest].sum()
    expected = [q[i] - p[i] if i in inside else q[i] * scale for i in range(7)]
    torch.testing.assert_close(student.grad[0], torch.stack(expected), rtol=1e-10, atol=1e-14)


def test_the_lost_probability_is_that_of_the_other_classes() -> None:
    teacher = torch.randn(4, 11, dtype=DOUBLE)
    top = top_logits(teacher, 4, columns=9, temperatures=(3.0,))
    softened = (teacher[:, :9] / 3).softmax(-1).sort(-1).values
    torch.testing.assert_close(top.lost_probability(3.0), softened[:, :5].sum(-1))


def test_in_parts_value_and_gradient_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    weight, bias = torch.randn(11, 3, dtype=DOUBLE), torch.randn(11, dtype=DOUBLE)
    other = VocabularyProjection(torch.randn(8, 3, dtype=DOUBLE), weight.clone() * 2, bias)
    hidden, gradients, totals = torch.randn(8, 3, dtype=DOUBLE), [], []
    for limit in (1 << 26, 22):  # all logits at once, and two rows at a time
        monkeypatch.setattr(row_chunks, "LOGITS_AT_ONCE", limit)
        leaves = [tensor.clone().requires_grad_() for tensor in (hidden, weight, bias)]
        top = top_logits(other, 3, columns=10, temperatures=(2.0,))
        total = kl_divergence(
            VocabularyProjection(*leaves), [top], temperature=2.0, columns=top.columns
        )
        total.backward()  # type: ignore[no-untyped-call]
        totals.append(float(total.detach()))
        gradients.append([leaf.grad for leaf in leaves])
    logits = (hidden @ weight.T + bias)[:, :10], other.logits()[:, :10]
    assert totals == pytest.approx([grouped_by_hand(*logits, 3, 2.0)] * 2, rel=1e-10)
    for first, second in zip(*gradients, strict=True):
        torch.testing.assert_close(first, second, rtol=1e-12, atol=1e-14)


def test_rows_that_are_selected_have_the_loss_of_them_all() -> None:
    """Also rows that do not follow one another, such as those of a source."""
    torch.manual_seed(0)
    student = torch.randn(6, 9)
    top = top_logits(torch.randn(6, 9), 3, columns=9, temperatures=(2.0,))
    parts = []
    for rows in (torch.tensor([0, 2, 5]), torch.tensor([1, 3, 4])):
        selected = top.select(rows)
        parts.append(kl_divergence(student[rows], [selected], temperature=2.0, columns=9))
    expected = kl_divergence(student, [top], temperature=2.0, columns=9)
    assert sum(parts).item() == pytest.approx(expected.item(), rel=1e-6)  # type: ignore[union-attr]
