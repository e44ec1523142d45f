"""Terms of MiniLM, MiniLMv2 and TinyBERT of whole models, by formulas on transformers' layers."""

import math
from dataclasses import dataclass
from typing import Any, cast

import pytest
import torch
from msgspec.structs import replace
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from tests.families import parity
from zoo.conformance.hf_reference import reference_model
from zoo.distillation.losses.base import DistillationLoss, ModelShape
from zoo.distillation.recipes import SHARED
from zoo.distillation.teachers.teacher import run_model
from zoo.distillation.term_tables import parse_term
from zoo.objectives.base import Batch
from zoo.plugins.registry import get_family

LENGTHS = (9, 6)  # of two rows, the second one padded
RECIPES = {recipe.name: recipe for recipe in SHARED}
ALL_KINDS = [
    {"kind": "attention-mse", "layers": "uniform"},
    {"kind": "attention-kl", "layers": "uniform"},
    {"kind": "relations", "layers": "uniform", "relation_heads": 8},
    {"kind": "hidden-mse", "layers": "uniform", "embeddings": True},
    {"kind": "hidden-cosine", "layers": "uniform"},
    {"kind": "first-token-mse", "layers": "uniform"},
    {"kind": "sentence-mse"},
]


@dataclass(frozen=True)
class Model:
    """A random model in float64.

    Attributes:
        module: the model.
        shape: its sizes.
        config: its configuration.
    """

    module: nn.Module
    shape: ModelShape
    config: Any

    @classmethod
    def random(cls, name: str = "bert", **sizes: Any) -> "Model":
        """Return a model of a family."""
        family = get_family(name)
        changes = {"num_layers": 2, "vocab_size": 120, **sizes}
        config: Any = replace(family.sizes()["tiny"], **changes)
        sizes = {"layers": config.num_layers, "heads": config.num_heads, "classes": 0}
        shape = ModelShape(hidden_size=config.hidden_size, causal=name == "gpt", **sizes)
        return cls(parity.random_model(family, config, "none"), shape, config)


def loss(
    table: dict[str, Any], student: Model, teacher: Model, tensors: dict[str, Tensor]
) -> float:
    """Return the value of a term on a batch, as the trainer computes it: the sum by the count."""
    objective = cast(Any, None)
    term = parse_term("x", table, "x")
    (made,) = term.loss.build(term, objective, student.shape, [teacher.shape])
    count = made.count(Batch(tensors, {}, len(tensors["input_ids"]), tokens=0))
    return total(made, student, teacher, tensors) / count


def total(
    made: DistillationLoss, student: Model, teacher: Model, tensors: dict[str, Tensor]
) -> float:
    with torch.no_grad():
        views = [
            run_model(model.module, model.module, cast(Any, None), tensors, layers, False)
            for model, layers in (
                (student, made.captured("student")),
                (teacher, made.captured("teacher")),
            )
        ]
        return float(made.total(views[0], [views[1]], None))


def padded(texts: list[Tensor]) -> dict[str, Tensor]:
    masks = [torch.ones_like(text) for text in texts]
    ids, mask = (pad_sequence(rows, batch_first=True) for rows in (texts, masks))
    return {"input_ids": ids, "attention_mask": mask}


@pytest.fixture
def batch() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return padded([torch.randint(5, 120, (n,), generator=generator) for n in LENGTHS])


@dataclass(frozen=True)
class Reference:
    """What transformers computes with the same weights.

    Attributes:
        states: hidden states, from the embeddings' output on.
        attentions: attention probabilities by layer.
        projections: queries, keys and values by layer, the heads side by side.
    """

    states: list[Tensor]
    attentions: list[Tensor]
    projections: list[list[Tensor]]

    @classmethod
    def of(cls, model: Model, batch: dict[str, Tensor]) -> "Reference":
        state = model.module.state_dict()
        other: Any = reference_model(get_family("bert"), model.config, "none", state)
        with torch.no_grad():
            outputs = other(**batch, output_hidden_states=True, output_attentions=True)
            projections = [
                [getattr(layer.attention.self, name)(x) for name in ("query", "key", "value")]
                for layer, x in zip(other.encoder.layer, outputs.hidden_states[:-1], strict=True)
            ]
        return cls(list(outputs.hidden_states), list(outputs.attentions), projections)


def kl(teacher: Tensor, student: Tensor) -> float:
    """Return the sum of the divergences of rows of probabilities."""
    return float((teacher * (teacher / student).log()).sum())


def relation(vectors: Tensor, head: int, heads: int) -> Tensor:
    """Return softmax(X X^T / sqrt(d)) of one relation head, of (tokens, width)."""
    size = vectors.shape[-1] // heads
    part = vectors[:, head * size : (head + 1) * size]
    return (part @ part.T / math.sqrt(size)).softmax(-1)


def relation_divergence(teacher: Tensor, student: Tensor, heads: int) -> float:
    """Return the mean over heads and tokens of vectors, (rows, tokens, width), without padding."""
    divergences = [
        kl(relation(teacher[row, :n], head, heads), relation(student[row, :n], head, heads))
        for row, n in enumerate(LENGTHS)
        for head in range(heads)
    ]
    return sum(divergences) / (heads * sum(LENGTHS))


@pytest.mark.long
def test_minilmv2(batch: dict[str, Tensor]) -> None:
    """Wang et al. 2021, equations 2 to 5: 48 relation heads of models of 4 and 6 heads."""
    student = Model.random(hidden_size=96, num_heads=4)
    teacher = Model.random(hidden_size=144, num_heads=6, num_layers=3)
    references = [Reference.of(model, batch).projections[-1] for model in (teacher, student)]
    divergences = [
        relation_divergence(of_teacher, of_student, 48)
        for of_teacher, of_student in zip(*references, strict=True)
    ]
    value = loss(RECIPES["minilmv2"].terms["relations"], student, teacher, batch)
    assert value == pytest.approx(sum(divergences) / 3, rel=1e-6)
    assert min(divergences) > 1e-3


def test_minilm(batch: dict[str, Tensor]) -> None:
    """Wang et al. 2020, equations 5 to 8: models of other widths, with equal numbers of heads."""
    student = Model.random(hidden_size=64, num_heads=4)
    teacher = Model.random(hidden_size=96, num_heads=4, num_layers=3)
    of_teacher, of_student = (Reference.of(model, batch) for model in (teacher, student))
    probabilities = of_teacher.attentions[-1], of_student.attentions[-1]
    attention = sum(
        kl(*(p[row, head, :n, :n] for p in probabilities))
        for row, n in enumerate(LENGTHS)
        for head in range(4)
    ) / (4 * sum(LENGTHS))
    values = relation_divergence(of_teacher.projections[-1][2], of_student.projections[-1][2], 4)
    terms = RECIPES["minilm"].terms
    by_name = {name: loss(term, student, teacher, batch) for name, term in terms.items()}
    assert by_name == {
        "attention": pytest.approx(attention, rel=1e-6),
        "values": pytest.approx(values, rel=1e-6),
    }
    assert min(attention, values) > 1e-3


def scores(reference: Reference, layer: int, row: int, n: int) -> Tensor:
    """Return the scores before the softmax of a row without padding, by head: 4 of them."""
    queries, keys = (
        vectors[row, :n].reshape(n, 4, -1).transpose(0, 1)
        for vectors in reference.projections[layer][:2]
    )
    products: Tensor = queries @ keys.transpose(1, 2)
    return products / math.sqrt(queries.shape[-1])


@pytest.mark.parametrize("lengths", [(9, 9), LENGTHS], ids=["full", "padded"])
def test_tinybert(batch: dict[str, Tensor], lengths: tuple[int, int]) -> None:
    """general_distill.py: MSELoss of layer k and the teacher's (k + 1) s - 1, of full rows.

    Of padded rows, the same means without padding: there, a score of a padded key is 0 in both.
    """
    if lengths == (9, 9):
        batch = {"input_ids": batch["input_ids"] + 5, "attention_mask": torch.ones(2, 9).long()}
    student = Model.random(hidden_size=64, num_heads=4)
    teacher = Model.random(hidden_size=64, num_heads=4, num_layers=4)
    of_teacher, of_student = (Reference.of(model, batch) for model in (teacher, student))
    attention = hidden = 0.0
    for k, layer in enumerate((1, 3)):
        first, second = (
            torch.cat([scores(model, number, row, n).flatten() for row, n in enumerate(lengths)])
            for model, number in ((of_student, k), (of_teacher, layer))
        )
        attention += float(nn.functional.mse_loss(first, second))
    for k, state in enumerate((0, 2, 4)):
        first, second = (
            torch.cat([states[row, :n] for row, n in enumerate(lengths)])
            for states in (of_student.states[k], of_teacher.states[state])
        )
        hidden += float(nn.functional.mse_loss(first, second))
    terms = RECIPES["tinybert"].terms
    without_map = {**terms["hidden"], "projection": "auto"}
    assert loss(terms["attention"], student, teacher, batch) == pytest.approx(attention, rel=1e-6)
    assert loss(without_map, student, teacher, batch) == pytest.approx(hidden, rel=1e-6)


DOCUMENTS = [[1, 1, 1, 1, 2, 2, 2, 3, 3], [1, 1, 1, 1, 1, 2, 2, 0, 0]]


@pytest.mark.by_default(
    "attention-mse-deberta",
    "hidden-cosine-deberta",
    "relations-gpt",
    "attention-kl-bert",
    "hidden-mse-bert",
)
@pytest.mark.parametrize("family", ["bert", "gpt", "deberta"])
@pytest.mark.parametrize("term", ALL_KINDS, ids=lambda term: term["kind"])
def test_packed_documents_equal_padded_rows(family: str, term: dict[str, Any]) -> None:
    """Five documents in two rows with padding, and in a row each."""
    sizes = {"num_heads": 4, "hidden_size": 64}
    student, teacher = Model.random(family, **sizes), Model.random(family, num_layers=4, **sizes)
    documents = torch.tensor(DOCUMENTS)
    ids = torch.randint(5, 120, documents.shape, generator=torch.Generator().manual_seed(1))
    positions = torch.tensor([[0, 1, 2, 3, 0, 1, 2, 0, 1], [0, 1, 2, 3, 4, 0, 1, 0, 0]])
    packed = {"input_ids": ids, "position_ids": positions, "document_ids": documents}
    numbered = [(0, 1), (0, 2), (0, 3), (1, 1), (1, 2)]  # row and number of each document
    texts = [ids[row][documents[row] == number] for row, number in numbered]
    expected = loss(term, student, teacher, padded(texts))
    assert loss(term, student, teacher, packed) == pytest.approx(expected, rel=1e-6)
    assert expected > 1e-4
