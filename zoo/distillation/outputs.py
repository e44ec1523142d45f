"""The outputs of a model for a batch, as losses compare them. Importing it imports no torch."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self, TypeAlias

if TYPE_CHECKING:
    from torch import Tensor

    from zoo.nn.capture import Captured
    from zoo.nn.row_chunks import Logits
    from zoo.objectives.base import Outputs, TrainingObjective


def real_tokens(batch: "Mapping[str, Tensor]", ids: str = "input_ids") -> "Tensor":
    """Return which tokens are not padding, (rows, tokens), bool."""
    # Packed rows have ``document_ids``, padded rows an ``attention_mask``. Without either, no token
    # of the model's first input, ``ids``, is padding.
    import torch

    if "document_ids" in batch:
        return batch["document_ids"] != 0
    if "attention_mask" in batch:
        return batch["attention_mask"] != 0
    return torch.ones(batch[ids].shape[:2], dtype=torch.bool, device=batch[ids].device)


def attention_pairs(
    batch: "Mapping[str, Tensor]", *, causal: bool, ids: str = "input_ids"
) -> "Tensor":
    """Return which keys each query may attend to, (rows, 1, tokens, tokens), bool."""
    real = real_tokens(batch, ids)
    pairs = real[:, None, :, None] & real[:, None, None, :]
    if "document_ids" in batch:
        documents = batch["document_ids"]
        pairs = pairs & (documents[:, None, :, None] == documents[:, None, None, :])
    return pairs.tril() if causal else pairs


def first_tokens(batch: "Mapping[str, Tensor]", ids: str = "input_ids") -> "Tensor":
    """Return which tokens begin a document, (rows, tokens), bool."""
    import torch

    real = real_tokens(batch, ids)
    first = torch.zeros_like(real)
    first[:, 0] = True
    if "document_ids" in batch:
        documents = batch["document_ids"]
        first[:, 1:] = documents[:, 1:] != documents[:, :-1]
    return first & real


def pool_texts(hidden: "Tensor", batch: "Mapping[str, Tensor]") -> "Tensor":
    """Return the mean hidden state of each text of a batch, (texts, hidden), at least float32."""
    # ``hidden`` is (rows, tokens, hidden); the texts are in order, row by row.
    from zoo.nn.dtypes import at_least_float32

    real = real_tokens(batch)
    text_of_token = first_tokens(batch)[real].cumsum(0) - 1
    states = at_least_float32(hidden[real])
    sizes = text_of_token.bincount()
    sums = states.new_zeros(len(sizes), states.shape[-1]).index_add(0, text_of_token, states)
    return sums / sizes[:, None]


@dataclass(frozen=True)
class ModelOutput:
    """The outputs of a student or a teacher for one batch."""

    model: Any  # Computes logits at further positions.
    objective: "TrainingObjective"  # The objective that ran the model.
    outputs: "Outputs"
    captured: "Captured"  # The layers that losses compare.
    batch: "Mapping[str, Tensor]" = field(default_factory=dict)

    def reordered(self, order: "Tensor") -> Self:
        """Return the output with its labels reordered; ``order`` has the old indices, (labels,)."""
        logits = {
            name: values.index_select(-1, order.to(values.device))
            for name, values in self.outputs.logits.items()
        }
        return replace(self, outputs=replace(self.outputs, logits=logits))

    def logits(self, term: str, *, everywhere: bool) -> "Logits":
        """Return the logits of the predicted positions, or of all tokens of text, (n, classes)."""
        from zoo.objectives.losses.predictions import predict_at

        if not everywhere:
            return self.objective.scored_logits(self.outputs, self.batch)[term]
        positions = real_tokens(self.batch).flatten().nonzero().squeeze(-1)
        return predict_at(self.model, self.hidden(-1), positions)

    def logit_rows(self, term: str, *, everywhere: bool) -> "Tensor | None":
        """Return the row of the batch of each of ``logits``, (n,); ``None`` if it is not known."""
        if everywhere:
            return real_tokens(self.batch).nonzero()[:, 0]
        return self.objective.scored_rows({**self.batch, **self.outputs.inputs}, term)

    def labels(self, term: str) -> "Tensor":
        """Return the labels of ``logits``, in the order of their rows, (n,) or (n, classes)."""
        from zoo.objectives.losses.cross_entropy import IGNORED

        tensors = {**self.batch, **self.outputs.inputs}
        labels = tensors[self.objective.label_tensors[term]]
        is_class_of_token = labels.dim() == 2 and not labels.is_floating_point()
        return labels[labels != IGNORED] if is_class_of_token else labels

    # A model may have further states after the tokens of a row, such as a second stream, and keys
    # of a memory before them. Neither is compared.

    def hidden(self, layer: int) -> "Tensor":
        """Return the hidden states of the tokens, (rows, tokens, hidden)."""
        return self.captured.hidden[layer][:, : real_tokens(self.batch).shape[1]]

    def attention_scores(self, layer: int) -> "Tensor":
        """Return the attention scores before the softmax, (rows, heads, tokens, tokens)."""
        tokens = real_tokens(self.batch).shape[1]
        return self.captured.attention_scores[layer][..., :tokens, -tokens:]

    def queries_keys_values(self, layer: int) -> "tuple[Tensor, Tensor, Tensor]":
        """Return queries, keys and values, (rows, heads, tokens, head size) each."""
        tokens = real_tokens(self.batch).shape[1]
        queries, keys, values = self.captured.queries_keys_values[layer]
        return queries[..., :tokens, :], keys[..., -tokens:, :], values[..., -tokens:, :]

    def text_embeddings(self) -> "Tensor":
        """Return the mean of the last hidden states of each text, (texts, hidden)."""
        return pool_texts(self.hidden(-1), self.batch)


@dataclass(frozen=True)
class TeacherLogits:
    """Logits of a teacher, as a loss compares them.

    Attributes:
        term: loss term of the student's objective that they belong to.
        everywhere: whether they are compared at all tokens of text, instead of the predicted
            positions.
        temperature: temperature at which the loss needs no more than the largest logits and the
            probability of all other classes; ``None`` if it needs all logits.
    """

    term: str
    everywhere: bool
    temperature: float | None = None


@dataclass(frozen=True)
class HeadEmbeddings:
    """Embeddings that the head of a sentence encoder returns.

    Attributes:
        term: loss term of the student's objective that they belong to.
    """

    term: str

    def embeddings(self, output: ModelOutput) -> "Tensor":
        """Return the embedding of each text, (texts, width)."""
        vectors: Tensor = output.outputs.logits[self.term]
        return vectors


@dataclass(frozen=True)
class TextEmbeddings:
    """Means of the last hidden states of texts, which models with different tokens have as well."""

    def embeddings(self, output: ModelOutput) -> "Tensor":
        """Return the embedding of each text, (texts, width)."""
        return output.text_embeddings()


# An output of a teacher that is small enough to be kept in a cache.
TeacherOutput: TypeAlias = TeacherLogits | HeadEmbeddings | TextEmbeddings
