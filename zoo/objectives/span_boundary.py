"""The span-boundary objective, in addition to masked language modelling."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.nn.dtypes import at_least_float32
from zoo.nn.heads import VocabularyProjection
from zoo.nn.layers.init import init_weights
from zoo.nn.row_chunks import fits_at_once
from zoo.objectives.base import Batch, Example, LossOutput, Outputs, TrainedModel
from zoo.objectives.examples.masking import MaskStrategy, label_runs
from zoo.objectives.examples.packing import PackedRow
from zoo.objectives.examples.vocabulary import Ids
from zoo.objectives.losses.predictions import cross_entropy_sum, gather_positions, predict_at
from zoo.objectives.masked import MASKED_LM, MaskedLanguageModelling, MaskedOptions, model_inputs
from zoo.objectives.options import Options
from zoo.overrides import override

if TYPE_CHECKING:
    from zoo.families.base import Family

SPAN_BOUNDARY = "span-boundary"  # the loss term
MAX_SPAN = 20
POSITION_SIZE = 200


class SpanBoundaryOptions(MaskedOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of masking, with spans as the default strategy."""

    mask_strategy: MaskStrategy = "spans"


class SpanBoundaryHead(nn.Module):
    """Predicts a token of a span from the hidden states around the span."""

    # Joshi et al. 2020, "SpanBERT: Improving Pre-training by Representing and Predicting Spans",
    # arXiv:1907.10529, section 3.2: each token of a masked span is predicted from the hidden states
    # of the two tokens around the span and its position in the span, by two layers with GeLU and
    # layer norm; logits are products with the token embeddings. Further details follow the released
    # code (``BertPairTargetPredictionHead``, ``span_masking``): position embeddings have size 200,
    # only the first 20 tokens of a span are predicted, and a span at either end of a text has no
    # boundary.
    #
    # The boundary head is only used for pretraining: the final model does not have it.

    def __init__(
        self, hidden_size: int, embedding_size: int, vocab_size: int, layer_norm_eps: float
    ) -> None:
        super().__init__()
        self.positions = nn.Embedding(MAX_SPAN, POSITION_SIZE)
        self.inner = nn.Linear(2 * hidden_size + POSITION_SIZE, hidden_size)
        self.inner_norm = nn.LayerNorm(hidden_size, eps=layer_norm_eps)
        self.outer = nn.Linear(hidden_size, embedding_size)
        self.outer_norm = nn.LayerNorm(embedding_size, eps=layer_norm_eps)
        self.bias = nn.Parameter(self.outer.weight.new_zeros(vocab_size))

    def forward(
        self, left: Tensor, right: Tensor, offsets: Tensor, table: Tensor
    ) -> VocabularyProjection:
        """Return the projection to the logits, (n, vocabulary).

        Args:
            left: hidden states before the span, (n, hidden).
            right: hidden states after the span, (n, hidden).
            offsets: position of the token in the span, from 0, (n,), int64.
            table: token embeddings, (vocabulary, embedding).
        """
        x = torch.cat([left, right, self.positions(offsets)], dim=-1)
        x = self.inner_norm(F.gelu(self.inner(x)))
        x = self.outer_norm(F.gelu(self.outer(x)))
        return VocabularyProjection(x, table, self.bias)


class ModelWithSBO(nn.Module):
    """A masked language model with a span-boundary head."""

    def __init__(self, model: nn.Module, boundaries: SpanBoundaryHead) -> None:
        super().__init__()
        self.model = model
        self.boundary_head = boundaries


class SpanBoundary(MaskedLanguageModelling):
    """Predicts masked tokens from their own hidden states and from the boundaries of their span."""

    name: ClassVar[str] = "masked-lm+span-boundary"
    options_type: ClassVar[type[Options]] = SpanBoundaryOptions

    @property
    @override
    def label_tensors(self) -> Mapping[str, str]:
        return {**super().label_tensors, SPAN_BOUNDARY: "span_labels"}

    @property
    @override
    def loss_weights(self) -> Mapping[str, float]:
        """Loss term -> weight; the plain sum of both losses (section 3.2)."""
        return {MASKED_LM: 1.0, SPAN_BOUNDARY: 1.0}

    @override
    def model(self, family: "Family", config: Any) -> nn.Module:
        """Return the masked language model with a new span-boundary head."""
        model: Any = family.model(config, self.head)
        vocabulary, width = model.embeddings.tokens.weight.shape
        head = SpanBoundaryHead(config.hidden_size, width, vocabulary, config.layer_norm_eps)
        init_weights(head, std=config.initializer_range)
        return ModelWithSBO(model, head)

    @override
    def models_to_save(self, model: nn.Module) -> dict[str, TrainedModel]:
        assert isinstance(model, ModelWithSBO), "learner made it"
        return super().models_to_save(model.model)

    @override
    def mask_row(self, packed: PackedRow, rng: np.random.Generator) -> Example:
        """Return a row with masked spans, and the positions of their boundaries."""
        selection = self.select(packed, rng)
        row = self.mask_positions(packed, selection, rng)
        positions, offsets, left, right = find_boundaries(packed, selection.positions)
        return replace(
            row,
            values={
                **row.values,
                "span_labels": packed.input_ids[positions],
                "span_offsets": offsets,
            },
            positions={
                **row.positions,
                "lefts": ("input_ids", left),
                "rights": ("input_ids", right),
            },
            counts={**row.counts, SPAN_BOUNDARY: len(positions)},
        )

    @override
    def max_values(self, batch: Batch) -> dict[str, int]:
        names = ("span_labels", "span_offsets", "lefts", "rights")
        return super().max_values(batch) | dict.fromkeys(names, self.max_masked)

    @override
    def forward(self, model: nn.Module, batch: Mapping[str, Tensor]) -> Outputs:
        """Return the logits of masked tokens, from their own states and from the boundaries."""
        masked_lm = cast("Any", model.model)
        boundary_head = cast("Any", model.boundary_head)
        hidden = masked_lm.encode(**model_inputs(batch))
        masked = predict_at(masked_lm, hidden, batch["label_positions"])
        boundary = boundary_head(
            gather_positions(hidden, batch["lefts"]),
            gather_positions(hidden, batch["rights"]),
            batch["span_offsets"],
            masked_lm.embeddings.tokens.weight,
        )
        if fits_at_once(len(boundary.hidden), len(boundary.weight)):
            boundary = at_least_float32(boundary.logits())
        return Outputs({MASKED_LM: masked, SPAN_BOUNDARY: boundary})

    @override
    def loss(self, outputs: Outputs, batch: Mapping[str, Tensor]) -> LossOutput:
        masked = super().loss(outputs, batch)
        boundary = cross_entropy_sum(
            outputs.logits[SPAN_BOUNDARY], batch["span_labels"], SPAN_BOUNDARY
        )
        return LossOutput(
            masked.sums | boundary.sums,
            masked.metrics | {"boundary_accuracy": boundary.metrics["accuracy"]},
        )


def find_boundaries(packed: PackedRow, positions: Ids) -> tuple[Ids, Ids, Ids, Ids]:
    """Return the masked tokens that are predicted from the boundaries of their span.

    Tokens of spans without a text token on either side, and those beyond the first ``MAX_SPAN``
    tokens of a span, are left out.

    Args:
        packed: the row.
        positions: sorted positions of masked tokens, (n,); adjacent ones in a segment form a span.

    Returns:
        Positions of the tokens, their positions in the span from 0, and the positions before and
        after the span, (m,) int64 each.
    """
    texts = np.append(packed.document_ids, 0)
    is_text = np.append(packed.is_text, False)  # Index -1 is not text.
    span_ids = label_runs(positions, texts)
    first_positions = positions[np.diff(span_ids, prepend=-1) > 0]
    sizes = np.bincount(span_ids, minlength=len(first_positions))
    left = first_positions - 1
    right = first_positions + sizes
    has_boundaries = (
        is_text[left]
        & is_text[right]
        & (texts[left] == texts[first_positions])
        & (texts[right] == texts[first_positions])
    )
    offsets = positions - first_positions[span_ids]
    is_predicted = has_boundaries[span_ids] & (offsets < MAX_SPAN)
    predicted_spans = span_ids[is_predicted]
    return (
        positions[is_predicted],
        offsets[is_predicted],
        left[predicted_spans],
        right[predicted_spans],
    )
