"""Classification of sentence pairs, jointly with masked language modelling."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from zoo.errors import UsageError
from zoo.objectives.base import Batch, Example, ExampleDataset, LossOutput, Outputs
from zoo.objectives.examples.packing import pack
from zoo.objectives.examples.sentence_pair_data import (
    PairGenerator,
    SentencePairRows,
    cached_pairs,
    consecutive_pairs,
    next_sentence_pairs,
)
from zoo.objectives.losses.predictions import cross_entropy_sum, value_rows
from zoo.objectives.masked import MaskedLanguageModelling, MaskedOptions
from zoo.objectives.options import Options
from zoo.overrides import override

if TYPE_CHECKING:
    from torch import Tensor, nn

    from zoo.data.corpus import Split
    from zoo.families.base import Family
    from zoo.families.config import Config


class PairOptions(MaskedOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of masking and of pairs."""

    # Number of times that pairs are made of the corpus, with other split points and random segments
    # each time; an epoch has all of them.
    dupe_factor: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dupe_factor < 1:
            raise ValueError(f"dupe_factor is {self.dupe_factor}, which is not positive")


class SentencePairDataset(ExampleDataset):
    """Packed rows of sentence pairs with masked tokens."""

    def __init__(
        self, objective: "SentencePairs", split: "Split", pairs: SentencePairRows, seed: int
    ) -> None:
        self.objective = objective
        self.split = split
        self.pairs = pairs
        self.seed = seed
        self.mask_weights = objective.mask_weights(split)

    def __len__(self) -> int:
        return len(self.pairs)

    @override
    def cut_lines(self) -> list[str]:
        truncated = int(self.pairs.truncated.sum())
        if not truncated:
            return []
        return [
            f"{truncated:,} of {len(self.pairs.labels):,} sentence pairs were longer than "
            f"{self.objective.length:,} tokens and were cut, as this objective does"
        ]

    @override
    def example(self, index: int, rng: np.random.Generator) -> Example:
        objective = self.objective
        vocabulary = self.objective.vocabulary
        rng = objective.options.generator_of_row(rng, self.seed, index)
        texts = []
        labels = []
        for (start, end, other_start, other_end), label in self.pairs.row(index):
            first = self.split.read(start, end)
            second = self.split.read(other_start, other_end)
            if objective.swap and label == 0 and rng.random() < 0.5:
                first, second = second, first
                label = objective.swapped_label
            texts.append(vocabulary.pair_template.wrap(first, second))
            labels.append(label)
        packed = pack(texts, length=objective.length, pad=vocabulary.pad_id)
        row = objective.mask_row(packed.weighted(self.mask_weights), rng)
        return Example(
            row.arrays,
            values={**row.values, "pair_labels": np.array(labels, dtype=np.int64)},
            positions={**row.positions, "start_positions": ("input_ids", packed.start_positions)},
            counts={**row.counts, objective.term: len(labels)},
        )


class SentencePairs(MaskedLanguageModelling):
    """Base class of the sentence-pair objectives."""

    # *Next-sentence prediction* (Devlin et al. 2018, arXiv:1810.04805, section 3.1): the second
    # segment follows the first (label 0), or is from another document (label 1). *Sentence-order
    # prediction* (Lan et al. 2020, arXiv:1909.11942, section 3.1): two consecutive segments are in
    # order (label 0), or swapped (label 1). The labels are as in the released code.

    head: ClassVar[str] = "pretraining"
    options_type: ClassVar[type[Options]] = PairOptions
    term: ClassVar[str]  # Name of the loss term.
    make_pairs: ClassVar[PairGenerator]  # Function that makes the pairs of a split.
    # Swap half of the pairs with label 0 when a row is used, and set their label.
    swap: ClassVar[bool]
    swapped_label: ClassVar[int] = 1
    num_labels: ClassVar[int] = 2  # Number of classes of the head.
    min_documents: ClassVar[int] = 1  # Smallest number of documents.

    @property
    @override
    def label_tensors(self) -> Mapping[str, str]:
        return {**super().label_tensors, self.term: "pair_labels"}

    @property
    @override
    def loss_weights(self) -> Mapping[str, float]:
        """Loss term -> weight; the plain sum of the losses, as in the released code."""
        return {**super().loss_weights, self.term: 1.0}

    @classmethod
    @override
    def unsupported_reason(cls, family: "Family", config: "Config") -> str | None:
        if super().unsupported_reason(family, config) is None:
            outputs = family.onnx(config, cls.head).outputs
            if ("batch", cls.num_labels) in outputs.values():
                return None
        return (
            f"none of its heads ({', '.join(family.heads())}) predicts both masked tokens and "
            "the label of a sentence pair"
        )

    @override
    def dataset(self, split: "Split", seed: int) -> ExampleDataset:
        self.vocabulary.special_token_id("mask")
        special_tokens = self.vocabulary.pair_template.size
        if self.length < special_tokens + 2:
            raise UsageError(
                f"rows of {self.length} tokens have no place for two texts", "make them longer"
            )
        hint = "see `zoo corpus build --help`, or choose --objective masked-lm"
        if split.num_documents < self.min_documents:
            raise UsageError(
                f"{self.name} takes texts of {self.min_documents} documents, and there is one", hint
            )
        if not self._has_pairs(split):
            raise UsageError(
                f"no document has two sentences, so that {self.name} has no pairs to learn from",
                hint,
            )
        pairs = cached_pairs(
            split,
            type(self).make_pairs,
            length=self.length,
            special_tokens=special_tokens,
            seed=seed,
            dupe_factor=self.options.dupe_factor,
        )
        return SentencePairDataset(self, split, pairs, seed)

    @override
    def block_dataset(
        self, split: "Split", seed: int, example_rows: ExampleDataset
    ) -> ExampleDataset | None:
        if not self._has_pairs(split):
            return None
        return self.dataset(split, seed)

    def _has_pairs(self, split: "Split") -> bool:
        """Return whether there are enough documents, one of them with two sentences."""
        sizes = np.diff(np.asarray(split.documents))
        return len(sizes) >= self.min_documents and int(sizes.max(initial=0)) >= 2

    @override
    def max_values(self, batch: Batch) -> dict[str, int]:
        # The shortest pair has a token of either text.
        most = self.length // (self.vocabulary.pair_template.size + 2)
        pair_values = dict.fromkeys(("pair_labels", "start_positions"), most)
        return super().max_values(batch) | pair_values

    @override
    def forward(self, model: "nn.Module", batch: "Mapping[str, Tensor]") -> Outputs:
        """Return the logits of the predicted tokens, and (pairs, num_labels) of the pairs."""
        from zoo.nn.dtypes import at_least_float32

        module: Any = model
        logits, first_tokens = self.predict_tokens(module, batch, batch["start_positions"])
        pairs = at_least_float32(module.pair_scores(first_tokens))  # (pairs, num_labels)
        return Outputs({**logits, self.term: pairs})

    @override
    def loss(self, outputs: Outputs, batch: "Mapping[str, Tensor]") -> LossOutput:
        masked = super().loss(outputs, batch)
        rows = value_rows(batch, "start_positions")
        pairs = cross_entropy_sum(outputs.logits[self.term], batch["pair_labels"], self.term, rows)
        return LossOutput(
            masked.sums | pairs.sums,
            masked.metrics | {"pair_accuracy": pairs.metrics["accuracy"]},
            row_sums=masked.row_sums | pairs.row_sums,
        )


class NextSentence(SentencePairs):
    """Masked language modelling with next-sentence prediction."""

    name: ClassVar[str] = "masked-lm+next-sentence"
    term: ClassVar[str] = "next-sentence"
    make_pairs: ClassVar[PairGenerator] = staticmethod(next_sentence_pairs)
    swap: ClassVar[bool] = False
    min_documents: ClassVar[int] = 2


class SentenceOrder(SentencePairs):
    """Masked language modelling with sentence-order prediction."""

    name: ClassVar[str] = "masked-lm+sentence-order"
    term: ClassVar[str] = "sentence-order"
    make_pairs: ClassVar[PairGenerator] = staticmethod(consecutive_pairs)
    swap: ClassVar[bool] = True
