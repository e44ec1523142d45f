"""Prefix language modelling: a text's first part is the source, the rest the target."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from zoo.data.document_stream import Documents
from zoo.data.packing import BudgetFactory, RowBudget
from zoo.errors import UsageError
from zoo.objectives.base import Batch, Example, LossOutput, Outputs
from zoo.objectives.examples.vocabulary import Ids
from zoo.objectives.losses.predictions import cross_entropy_sum, predict_at, value_rows
from zoo.objectives.options import Options
from zoo.objectives.seq2seq import (
    SEQ2SEQ_LM,
    Seq2SeqDataset,
    Seq2SeqObjective,
    Seq2SeqOptions,
)
from zoo.overrides import override

if TYPE_CHECKING:
    from torch import Tensor

SOURCE_LM = "source-lm"  # The loss term of the tokens of sources.
SOURCE_LABELS = "source_labels"
SOURCE_POSITIONS = "source_label_positions"
RESERVE_DIVISOR = 16  # Expected number of tokens per text, for the reserved room.


class PrefixRowBudget(RowBudget):
    """The free tokens of an encoder's and a decoder's row for texts of two kinds."""

    # At either end of the range of draws, a text has one token in one row, and its others in the
    # other row, with special tokens in both. The budget of the first kind is for the longest
    # sources, the budget of the second for the longest targets.

    def __init__(self, length: int, special_tokens: int) -> None:
        self.free = [length, length]  # free tokens for either kind
        self.special_tokens = special_tokens  # of each source and target

    @property
    def least(self) -> int:
        """Length of the shortest source or target."""
        return 1 + self.special_tokens

    @property
    def kind(self) -> int:
        """Kind of the next text, 0 or 1: the one with more room."""
        return int(self.free[1] > self.free[0])

    @override
    def capacity(self) -> int:
        """Return the number of tokens that fit, with room reserved for texts of the other kind."""
        free = self.free[self.kind]
        opposite = self.free[1 - self.kind]
        if opposite < self.least:
            return 0
        return free - 2 * self.special_tokens - opposite // RESERVE_DIVISOR

    @override
    def add(self, tokens: int) -> None:
        kind = self.kind  # The next text may be of the other kind.
        self.free[kind] -= max(tokens - 1, 1) + self.special_tokens
        self.free[1 - kind] -= self.least


def draw_split_points(
    sizes: Ids, length: int, special_tokens: int, rng: np.random.Generator
) -> Ids:
    """Draw the number of source tokens of each text of a row, (texts,).

    It is at least one, and not all; 0 for a text of a single token.

    Args:
        sizes: number of tokens per text, (texts,), which fit into ``PrefixRowBudget``.
        length: tokens of the encoder's and of the decoder's row.
        special_tokens: number of special tokens of each source and target.
        rng: random generator of the row.
    """
    row = PrefixRowBudget(length, special_tokens)
    kinds = []
    for size in sizes.tolist():
        kinds.append(row.kind)
        row.add(size)
    draws = 1 + (rng.random() * (sizes - 1)).astype(np.int64)
    cuts = np.where((np.array(kinds) == 1) | (sizes == 1), sizes - draws, draws)
    # Rounding can make a row too long, by less than a token per text; then the split points of some
    # texts move by one token.
    source_excess = int((cuts + special_tokens).sum()) - length
    target_excess = int((sizes - cuts + special_tokens).sum()) - length
    if source_excess > 0:
        cuts[rng.permutation(np.flatnonzero(cuts > 1))[:source_excess]] -= 1
    if target_excess > 0:
        cuts[rng.permutation(np.flatnonzero(sizes - cuts > 1))[:target_excess]] += 1
    return cuts


class PrefixLmOptions(Seq2SeqOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of ``PrefixLm``."""

    # Also predict the tokens of sources, which only a model can learn that reads them from left to
    # right; by default such a model does.
    predict_source: bool | None = None


class PrefixLm(Seq2SeqObjective):
    """Predicts the rest of a text from its first part. Tables 3 and 4, prefix language modeling."""

    # Thank you for inviting -> me to your party last week .

    # Raffel et al. 2020 (arXiv:1910.10683, section 3.2.2). The split point is uniform
    # (``random_prefix_noise_mask`` of the released code). Drawn for each text independently, it
    # would leave rows half empty, since a row would need room for whole texts on either side. So
    # the texts of a row are of two kinds, and one draw decides for all: the fraction of a text that
    # is source in the first kind is target in the second. Together they fill the encoder's and the
    # decoder's row.
    #
    # A language model, which reads sources from left to right, predicts the whole text (section
    # 3.2.3). Sources and targets have a term each, of equal weights: a row has about as many tokens
    # of sources as of targets. The first token of a source is not predicted.

    name: ClassVar[str] = "prefix-lm"
    options_type: ClassVar[type[Options]] = PrefixLmOptions

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # Other models read a token of the source before they predict it.
        can_predict = getattr(self.config, "predicts_source", False)
        requested: bool | None = self.options.predict_source
        if requested and not can_predict:
            raise UsageError(
                "predict_source is true, and the model sees the tokens of a source before it "
                "predicts them",
                "leave it out",
            )
        self.predicts_source = can_predict if requested is None else requested

    @property
    @override
    def loss_weights(self) -> Mapping[str, float]:
        if not self.predicts_source:
            return super().loss_weights
        return {SEQ2SEQ_LM: 0.5, SOURCE_LM: 0.5}

    @property
    @override
    def label_tensors(self) -> Mapping[str, str]:
        if not self.predicts_source:
            return super().label_tensors
        return {**super().label_tensors, SOURCE_LM: SOURCE_LABELS}

    @property
    @override
    def token_terms(self) -> Mapping[str, tuple[str, str]]:
        terms = {SEQ2SEQ_LM: ("label_positions", "labels")}
        if self.predicts_source:
            terms[SOURCE_LM] = (SOURCE_POSITIONS, SOURCE_LABELS)
        return terms

    @property
    @override
    def dataset_type(self) -> type[Seq2SeqDataset]:
        return SourceLabelDataset if self.predicts_source else super().dataset_type

    @override
    def plan_rows(self, documents: Documents) -> tuple[BudgetFactory, int]:
        return partial(PrefixRowBudget, self.length, self.special_count), self.length

    @property
    def special_count(self) -> int:
        """Number of special tokens of each source and target."""
        return sum(map(len, self.special_tokens))

    @override
    def source_target_pairs(
        self, texts: Sequence[Ids], rng: np.random.Generator
    ) -> Sequence[tuple[Ids, Ids]]:
        sizes = np.array([len(text) for text in texts])
        cuts = draw_split_points(sizes, self.length, self.special_count, rng)
        return [(text[:cut], text[cut:]) for text, cut in zip(texts, cuts.tolist(), strict=True)]

    @override
    def max_values(self, batch: Batch) -> dict[str, int]:
        values = super().max_values(batch)
        if self.predicts_source:
            values |= dict.fromkeys((SOURCE_LABELS, SOURCE_POSITIONS), self.length)
        return values

    @override
    def predict_tokens(
        self, model: Any, hidden: "tuple[Tensor, Tensor]", batch: "Mapping[str, Tensor]"
    ) -> Outputs:
        outputs = super().predict_tokens(model, hidden, batch)
        if not self.predicts_source:
            return outputs
        logits = predict_at(model, hidden[0], batch[SOURCE_POSITIONS])
        return replace(outputs, logits={**outputs.logits, SOURCE_LM: logits})

    @override
    def scored_rows(self, batch: "Mapping[str, Tensor]", term: str) -> "Tensor | None":
        if term != SOURCE_LM:
            return super().scored_rows(batch, term)
        rows = value_rows(batch, SOURCE_POSITIONS)
        return None if rows is None else rows.indices

    @override
    def loss(self, outputs: Outputs, batch: "Mapping[str, Tensor]") -> LossOutput:
        target = super().loss(outputs, batch)
        if not self.predicts_source:
            return target
        rows = value_rows(batch, SOURCE_POSITIONS)
        logits = outputs.logits[SOURCE_LM]
        source = cross_entropy_sum(logits, batch[SOURCE_LABELS], SOURCE_LM, rows)
        return LossOutput(
            target.sums | source.sums,
            target.metrics | {"source_accuracy": source.metrics["accuracy"]},
            row_sums=target.row_sums | source.row_sums,
        )


class SourceLabelDataset(Seq2SeqDataset):
    """The same rows, with the tokens of sources as labels."""

    @override
    def example(self, index: int, rng: np.random.Generator) -> Example:
        example = super().example(index, rng)
        ids = example.arrays["input_ids"]
        documents = example.arrays["document_ids"]
        # Each token is predicted from the one before it in its source.
        has_next = (documents[:-1] == documents[1:]) & (documents[:-1] > 0)
        positions = np.flatnonzero(has_next)
        return replace(
            example,
            values={**example.values, SOURCE_LABELS: ids[positions + 1]},
            positions={**example.positions, SOURCE_POSITIONS: ("input_ids", positions)},
            counts={**example.counts, SOURCE_LM: len(positions)},
        )
