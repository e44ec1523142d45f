"""The loss terms of a recipe, bound to the layers and widths of a student and its teachers."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor, nn

from zoo.distillation.layer_maps import resolve_layers
from zoo.distillation.losses import terms
from zoo.distillation.losses.token_masks import first_tokens, real_tokens
from zoo.distillation.teachers.top_logits import TopLogits, divergence, number_of_classes
from zoo.errors import UsageError
from zoo.families.distillation import Term
from zoo.nn.capture import Captured
from zoo.objectives.base import Batch, Objective, Outputs, TrainingObjective
from zoo.objectives.losses.predictions import gather_positions, predict_at
from zoo.objectives.losses.row_chunks import Logits

Side = Literal["student", "teacher"]
Layers = dict[str, set[int]]  # argument of ``capture`` -> indices


@dataclass(frozen=True)
class ModelShape:
    """Sizes of a model that terms depend on.

    Attributes:
        layers: number of layers; 0 for a model without them.
        hidden_size: width of the hidden state.
        heads: number of attention heads; 0 for none.
        classes: number of classes of labelled data; 0 for a language model.
        causal: whether tokens attend to earlier ones alone.
    """

    layers: int
    hidden_size: int
    heads: int
    classes: int
    causal: bool


@dataclass(frozen=True)
class ModelView:
    """Results of one model for one batch.

    Attributes:
        model: the model, for logits of further positions.
        objective: objective that ran it.
        outputs: results of the forward pass.
        captured: states of the layers that terms compare.
        batch: tensors of the batch.
    """

    model: Any
    objective: TrainingObjective
    outputs: Outputs
    captured: Captured
    batch: Mapping[str, Tensor] = field(default_factory=dict)

    def reordered(self, order: Tensor) -> Self:
        """Return the view with the labels of its logits in another order.

        Args:
            order: index of each label in the order of the model, (labels,).
        """
        logits = {
            name: values.index_select(-1, order.to(values.device))
            for name, values in self.outputs.logits.items()
        }
        return replace(self, outputs=replace(self.outputs, logits=logits))

    def logits(self, term: str, *, everywhere: bool) -> Logits:
        """Return logits, (n, classes): of the predicted positions, or of all tokens of text."""
        if not everywhere:
            return self.objective.scored_logits(self.outputs, self.batch)[term]
        positions = real_tokens(self.batch).flatten().nonzero().squeeze(-1)
        return predict_at(self.model, self.hidden(-1), positions)

    def hidden(self, layer: int) -> Tensor:
        """Return the hidden states of the tokens, (rows, tokens, hidden).

        A model may have further states after those of a row's tokens, such as a second stream.
        """
        return self.captured.hidden[layer][:, : real_tokens(self.batch).shape[1]]

    def attention_scores(self, layer: int) -> Tensor:
        """Return the attention scores of the tokens, (rows, heads, tokens, tokens).

        A model may have further queries after them, and keys of a memory before them.
        """
        tokens = real_tokens(self.batch).shape[1]
        return self.captured.attention_scores[layer][..., :tokens, -tokens:]

    def queries_keys_values(self, layer: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values of the tokens, (rows, heads, tokens, head size) each."""
        tokens = real_tokens(self.batch).shape[1]
        queries, keys, values = self.captured.queries_keys_values[layer]
        return queries[..., :tokens, :], keys[..., -tokens:, :], values[..., -tokens:, :]

    def text_embeddings(self) -> Tensor:
        """Return the mean of the last hidden states of each text, (texts, hidden)."""
        return pool_texts(self.hidden(-1), self.batch)


def pool_texts(hidden: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
    """Return the mean of the hidden states of each text of a batch, at least float32.

    Args:
        hidden: hidden states, (rows, tokens, hidden).
        batch: tensors of the batch; see ``zoo.distillation.losses.token_masks``.

    Returns:
        (texts, hidden), row by row.
    """
    real = real_tokens(batch)
    text = first_tokens(batch)[real].cumsum(0) - 1  # of each token
    states = hidden[real].to(torch.promote_types(hidden.dtype, torch.float32))
    sizes = text.bincount()
    sums = states.new_zeros(len(sizes), states.shape[-1]).index_add(0, text, states)
    return sums / sizes[:, None]


class Comparison(ABC):
    """A term of a recipe, for one student and its teachers.

    Args:
        name: name of the loss term.
        term: settings of the term.
        student: sizes of the student.
        teachers: sizes of the teachers.

    Raises:
        UsageError: the term does not apply to these models.

    Attributes:
        needs_head: whether outputs of the head are compared.
        fields: names of the settings of a term that are read, besides ``kind`` and ``weight``.
    """

    needs_head: ClassVar[bool] = False
    fields: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self, name: str, term: Term, student: ModelShape, teachers: Sequence[ModelShape]
    ) -> None:
        self.name, self.term, self.student, self.teachers = name, term, student, teachers
        self.pairs = self._pairs()

    def _pairs(self) -> list[tuple[int, int]]:
        """Return pairs of a student's and a teacher's layer."""
        if len(self.teachers) > 1:
            raise UsageError(
                f"{self.term.kind} compares layers, and there are {len(self.teachers)} teachers",
                "several teachers are averaged by kl, logits-mse and embeddings alone",
            )
        return resolve_layers(self.term.layers, self.student.layers, self.teachers[0].layers)

    def layers(self, side: Side) -> Layers:
        """Return the layers to capture, by argument of ``zoo.nn.capture.capture``."""
        return {}

    def projection(self) -> nn.Module | None:
        """Return a new linear map from the student's width to the teacher's, if one is needed."""
        return None

    @abstractmethod
    def count(self, batch: Batch) -> int:
        """Return the number that the sum of a batch is divided by."""

    @abstractmethod
    def total(
        self, student: ModelView, teachers: Sequence[ModelView], projection: nn.Module | None
    ) -> Tensor:
        """Return the sum over a batch, a scalar with gradient."""

    def metrics(self, teachers: Sequence[ModelView]) -> dict[str, tuple[Tensor, Tensor]]:
        """Return further metrics of a batch, sum and count each; by default none."""
        return {}


class LogitsComparison(Comparison):
    """Base class of terms over logits: of one loss term of the objective.

    Attributes:
        of: loss term whose logits are compared.
        objective: the student's objective.
        on_text: whether the objective is one on text that scores some of the tokens.
    """

    needs_head: ClassVar[bool] = True
    fields: ClassVar[tuple[str, ...]] = ("positions", "reduction", "logits_of")

    def __init__(self, *args: Any, of: str, objective: TrainingObjective) -> None:
        self.of, self.objective = of, objective
        self.on_text = isinstance(objective, Objective) and not objective.scores_all_tokens
        super().__init__(*args)
        if self.term.reduction == "elements" and not self.student.classes:
            raise UsageError(
                f"{self.term.kind}: reduction elements divides by the classes of labelled data",
                f"--set distillation.terms.{self.name}.reduction=rows",
            )

    def _pairs(self) -> list[tuple[int, int]]:
        return []

    @property
    def everywhere(self) -> bool:
        """``True`` for logits of all tokens of text."""
        return self.on_text and self.term.positions == "all"

    def layers(self, side: Side) -> Layers:
        """See ``Comparison``: the last hidden state, for logits of all tokens."""
        return {"hidden": {-1}} if self.everywhere else {}

    def count(self, batch: Batch) -> int:
        """See ``Comparison``: rows of logits, or all of them."""
        if self.everywhere:
            rows = int(real_tokens(batch.tensors).sum())
        else:
            rows = self.objective.count_logits(batch, self.of)
        return rows * (self.student.classes if self.term.reduction == "elements" else 1)

    def read(
        self, student: ModelView, teachers: Sequence[ModelView]
    ) -> tuple[Logits, list[Logits], int]:
        """Return the logits of all models, and the number of classes that all have.

        Further logits of a model are padding of its vocabulary.
        """
        views = (student, *teachers)
        logits = [view.logits(self.of, everywhere=self.everywhere) for view in views]
        return logits[0], logits[1:], min(map(number_of_classes, logits))


class KLDivergence(LogitsComparison):
    """KL(teacher || student) of softened probabilities; see ``terms.kl_divergence``."""

    fields = ("temperature", "scale_by_temperature", *LogitsComparison.fields)

    def total(
        self, student: ModelView, teachers: Sequence[ModelView], projection: nn.Module | None
    ) -> Tensor:
        """See ``Comparison``."""
        logits, targets, columns = self.read(student, teachers)
        temperature = self.term.temperature
        total = divergence(logits, targets, temperature=temperature, columns=columns)
        return total * (temperature**2 if self.term.scale_by_temperature else 1.0)

    def metrics(self, teachers: Sequence[ModelView]) -> dict[str, tuple[Tensor, Tensor]]:
        """See ``Comparison``: the probability that a cache of the largest logits has lost."""
        logits = teachers[0].logits(self.of, everywhere=self.everywhere)
        if not isinstance(logits, TopLogits):
            return {}
        lost = logits.lost_probability(self.term.temperature)
        return {f"{self.name}-lost-probability": (lost.sum(), lost.new_tensor(len(lost)))}


class LogitsError(LogitsComparison):
    """Squared differences of logits, of one teacher or of the mean of several."""

    def total(
        self, student: ModelView, teachers: Sequence[ModelView], projection: nn.Module | None
    ) -> Tensor:
        """See ``Comparison``."""
        logits, targets, columns = self.read(student, teachers)
        values = [terms.dense(target, columns) for target in targets]
        mean = sum(values[1:], values[0]) / len(values)
        return terms.logits_error(terms.dense(logits, columns), mean)


def linear_map(term: Term, student: ModelShape, teacher: ModelShape) -> nn.Module | None:
    """Return a new linear map from a student's width to its teacher's, if a term has one."""
    if student.hidden_size == teacher.hidden_size and term.projection == "auto":
        return None
    return nn.Linear(student.hidden_size, teacher.hidden_size)


class HiddenComparison(Comparison):
    """Base class of terms over hidden states of layers, of tokens of text."""

    fields: ClassVar[tuple[str, ...]] = ("layers", "embeddings", "projection", "reduction")

    def _pairs(self) -> list[tuple[int, int]]:
        """Return pairs of hidden states: 0 is the embeddings, k the output of layer k - 1."""
        pairs = [(a + 1, b + 1) for a, b in super()._pairs()]
        return [(0, 0), *pairs] if self.term.embeddings else pairs

    def layers(self, side: Side) -> Layers:
        """See ``Comparison``."""
        return {"hidden": {pair[side == "teacher"] for pair in self.pairs}}

    def projection(self) -> nn.Module | None:
        """See ``Comparison``: one map for all layers, as in TinyBERT's released code."""
        return linear_map(self.term, self.student, self.teachers[0])

    def tokens(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Return which tokens are compared, (rows, tokens), bool."""
        return real_tokens(batch)

    def count(self, batch: Batch) -> int:
        """See ``Comparison``: rows or elements of one layer; layers are summed."""
        rows = int(self.tokens(batch.tensors).sum())
        by_element = self.term.reduction == "elements"
        return rows * (self.teachers[0].hidden_size if by_element else 1)

    def total(
        self, student: ModelView, teachers: Sequence[ModelView], projection: nn.Module | None
    ) -> Tensor:
        """See ``Comparison``."""
        positions = self.tokens(student.batch).flatten().nonzero().squeeze(-1)
        sums = []
        for first, second in self.pairs:
            state = gather_positions(student.hidden(first), positions)
            target = gather_positions(teachers[0].hidden(second), positions)
            mapped = state if projection is None else projection(state)
            sums.append(self.distance(mapped.float(), target.float()))
        return sum(sums[1:], sums[0])

    @staticmethod
    @abstractmethod
    def distance(student: Tensor, teacher: Tensor) -> Tensor:
        """Return the sum over (n, width)."""


class HiddenError(HiddenComparison):
    """Squared differences of hidden states."""

    distance = staticmethod(terms.squared_error)


class HiddenCosine(HiddenComparison):
    """Cosine distances of hidden states, each a single number."""

    fields = ("layers", "embeddings", "projection")
    distance = staticmethod(terms.cosine_distance)


class FirstTokenError(HiddenComparison):
    """Squared differences of the normalized hidden states of the first tokens."""

    distance = staticmethod(terms.normalized_squared_error)

    def tokens(self, batch: Mapping[str, Tensor]) -> Tensor:
        """See ``HiddenComparison``."""
        return first_tokens(batch)

    def count(self, batch: Batch) -> int:
        """See ``Comparison``: the mean is over layers, too, as in the released code."""
        return super().count(batch) * len(self.pairs)
