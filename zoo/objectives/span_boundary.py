"""The span-boundary objective, in addition to masked language modelling."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np

from zoo.objectives.base import Batch, Example, LossOutput, Outputs, TrainedModel
from zoo.objectives.examples.masking import MaskStrategy, label_runs
from zoo.objectives.examples.packing import PackedRow
from zoo.objectives.examples.vocabulary import Ids
from zoo.objectives.losses.predictions import (
    cross_entropy_sum,
    gather_positions,
    predict_at,
    value_rows,
)
from zoo.objectives.masked import MASKED_LM, MaskedLanguageModelling, MaskedOptions, model_inputs
from zoo.objectives.options import Options
from zoo.overrides import override

if TYPE_CHECKING:
    from torch import Tensor, nn

    from zoo.families.base import Family

SPAN_BOUNDARY = "span-boundary"  # the loss term
MAX_SPAN = 20


class SpanBoundaryOptions(MaskedOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of masking, with spans as the default strategy."""

    mask_strategy: MaskStrategy = "spans"


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
    def model(self, family: "Family", config: Any) -> "nn.Module":
        """Return the masked language model with a new span-boundary head."""
        from zoo.nn.layers.init import init_weights
        from zoo.objectives.losses.span_boundary_head import ModelWithSBO, SpanBoundaryHead

        model: Any = family.model(config, self.head)
        vocabulary, width = model.embeddings.tokens.weight.shape
        head = SpanBoundaryHead(
            config.hidden_size, width, vocabulary, config.layer_norm_eps, max_span=MAX_SPAN
        )
        init_weights(head, std=config.initializer_range)
        return ModelWithSBO(model, head)

    @override
    def models_to_save(self, model: "nn.Module") -> dict[str, TrainedModel]:
        from zoo.objectives.losses.span_boundary_head import ModelWithSBO

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
    def forward(self, model: "nn.Module", batch: "Mapping[str, Tensor]") -> Outputs:
        """Return the logits of masked tokens, from their own states and from the boundaries."""
        from zoo.nn.dtypes import at_least_float32
        from zoo.nn.row_chunks import fits_at_once

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
    def loss(self, outputs: Outputs, batch: "Mapping[str, Tensor]") -> LossOutput:
        masked = super().loss(outputs, batch)
        boundary = cross_entropy_sum(
            outputs.logits[SPAN_BOUNDARY],
            batch["span_labels"],
            SPAN_BOUNDARY,
            value_rows(batch, "lefts"),
        )
        return LossOutput(
            masked.sums | boundary.sums,
            masked.metrics | {"boundary_accuracy": boundary.metrics["accuracy"]},
            row_sums=masked.row_sums | boundary.row_sums,
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
