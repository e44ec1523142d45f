"""Masked language modelling (Devlin et al. 2018, arXiv:1810.04805, section 3.1)."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from zoo.data.rng import generator
from zoo.objectives.base import Batch, Example, ExampleDataset, LossOutput, Objective, Outputs
from zoo.objectives.examples.masking import (
    MaskSelection,
    MaskStrategy,
    mask_budget,
    select_mask_positions,
)
from zoo.objectives.examples.packing import PackedDataset, PackedRow
from zoo.objectives.examples.vocabulary import Ids, TokenizerView
from zoo.objectives.losses.predictions import (
    cross_entropy_sum,
    encode_at,
    predict,
    value_rows,
)
from zoo.objectives.options import Options
from zoo.overrides import override

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor, nn

    from zoo.data.corpus import Split
    from zoo.nn.heads import VocabularyProjection

MASKED_LM = "masked-lm"  # the loss term


class MaskedOptions(Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of masking."""

    # Unit of selection: single ``tokens``, whole ``words``, up to three consecutive words
    # (``ngrams``), or ``spans`` of up to ten words that are masked, replaced or kept together; see
    # ``zoo.objectives.examples.masking``.
    mask_strategy: MaskStrategy = "tokens"
    # Number of selected tokens, as a fraction of a row's tokens; see
    # ``zoo.objectives.examples.masking.mask_budget``.
    mask_prob: float = 0.15
    mask_token_prob: float = 0.8  # Fraction of the selected tokens that becomes the mask token.
    # Fraction of the selected tokens that becomes a random token; the rest is unchanged.
    random_token_prob: float = 0.1
    # Tokens are selected with a probability proportional to their count in the data to the power of
    # minus this; 0 for equal probabilities (Lample and Conneau 2019, arXiv:1901.07291, section 3.2;
    # only for the strategy ``tokens``).
    mask_smoothing: float = 0.0
    # ``dynamic``, other masks each time a row is used; or ``static``, the same ones each time.
    # Departure from both papers: Devlin et al. mask a corpus ten times.
    mask_schedule: Literal["dynamic", "static"] = "dynamic"

    def __post_init__(self) -> None:
        self.check_fraction("mask_prob")
        if (
            min(self.mask_token_prob, self.random_token_prob) < 0
            or self.mask_token_prob + self.random_token_prob > 1
        ):
            raise ValueError(
                f"mask_token_prob = {self.mask_token_prob} and random_token_prob = "
                f"{self.random_token_prob} add up to more than 1"
            )
        if not 0 <= self.mask_smoothing < math.inf:
            raise ValueError(f"mask_smoothing is {self.mask_smoothing}, not 0 or more")
        if self.mask_smoothing and self.mask_strategy != "tokens":
            raise ValueError(
                f"mask_smoothing selects tokens, and mask_strategy is {self.mask_strategy}"
            )

    def generator_of_row(
        self, rng: np.random.Generator, seed: int, index: int
    ) -> np.random.Generator:
        """Return the random generator of a row, for this use of it or for all uses."""
        if self.mask_schedule == "static":
            return generator(seed, "masks", index)
        return rng


def apply_mask(
    ids: Ids,
    selection: MaskSelection,
    vocabulary: TokenizerView,
    options: MaskedOptions,
    rng: np.random.Generator,
) -> Ids:
    """Mask the selected tokens of a row, (length,), int64; return the row."""
    row = ids.copy()
    positions, group_ids = selection
    # One draw per group masks, replaces or keeps its tokens.
    draws = np.zeros(0)
    if len(group_ids):
        draws = rng.random(int(group_ids[-1]) + 1)[group_ids]
    ordinary_ids = vocabulary.ordinary_ids
    random_ids = ordinary_ids[rng.integers(len(ordinary_ids), size=len(positions))]
    is_masked = draws < options.mask_token_prob
    is_changed = draws < options.mask_token_prob + options.random_token_prob
    is_replaced = is_changed & ~is_masked
    row[positions[is_masked]] = vocabulary.special_token_id("mask")
    row[positions[is_replaced]] = random_ids[is_replaced]
    return row


class MaskedDataset(ExampleDataset):
    """Packed rows with masked tokens."""

    def __init__(self, objective: "MaskedLanguageModelling", split: "Split", seed: int) -> None:
        self.objective = objective
        self.packed_rows = PackedDataset(split, objective.vocabulary, objective.length, seed)
        self.seed = seed
        self.mask_weights = objective.mask_weights(split)

    def __len__(self) -> int:
        return len(self.packed_rows)

    @override
    def example(self, index: int, rng: np.random.Generator) -> Example:
        rng = self.objective.options.generator_of_row(rng, self.seed, index)
        row = self.packed_rows.row(index).weighted(self.mask_weights)
        return self.objective.mask_row(row, rng)


class MaskedLanguageModelling(Objective):
    """Predicts masked tokens."""

    # 15 % of a row's tokens are selected. Of these, 80 % become the mask token, 10 % a random
    # token, and 10 % are unchanged; the model predicts the original tokens. Masking is dynamic, as
    # in Liu et al. 2019 (arXiv:1907.11692, section 4.1): the selection differs each time a row is
    # used, unless ``mask_schedule`` is static. As in the code released with the former
    # (create_pretraining_data.py), special tokens count for the 15 % but are never selected, and
    # the number is rounded, so that all batches of one size take the same time. A random token is
    # any that is not special; there, it may be a special one.

    name: ClassVar[str] = MASKED_LM
    head: ClassVar[str] = "masked-lm"
    # Array whose places ``label_positions`` counts.
    label_array: ClassVar[str] = "input_ids"
    options_type: ClassVar[type[Options]] = MaskedOptions

    @property
    @override
    def token_terms(self) -> Mapping[str, tuple[str, str]]:
        return {MASKED_LM: ("label_positions", "labels")}

    @property
    @override
    def loss_weights(self) -> Mapping[str, float]:
        return dict.fromkeys(self.token_terms, 1.0)

    @property
    @override
    def label_tensors(self) -> Mapping[str, str]:
        return {term: labels for term, (_, labels) in self.token_terms.items()}

    @property
    @override
    def visible_labels(self) -> Mapping[str, float]:
        changed = self.options.mask_token_prob + self.options.random_token_prob
        return dict.fromkeys(self.loss_weights, 1 - changed)

    @override
    def dataset(self, split: "Split", seed: int) -> ExampleDataset:
        self.vocabulary.special_token_id("mask")
        return MaskedDataset(self, split, seed)

    @override
    def stream_obstacle(self) -> str | None:
        if self.options.mask_smoothing:
            return "objective_args.mask_smoothing counts the tokens of a whole corpus"
        if self.options.mask_schedule == "static":
            return "objective_args.mask_schedule is static, and a stream packs new rows each epoch"
        return super().stream_obstacle()

    def mask_weights(self, split: "Split") -> "NDArray[np.float64] | None":
        """Return the weight of each token of the vocabulary, (vocab_size,), or ``None``.

        A token that the split lacks has the weight of one that it has once.
        """
        if not self.options.mask_smoothing:
            return None
        size = self.vocabulary.tokenizer.get_vocab_size()
        counts = np.zeros(size)
        for shard in split.shards:
            counts += np.bincount(shard, minlength=size)
        weights: NDArray[np.float64] = np.maximum(counts, 1) ** -self.options.mask_smoothing
        return weights

    def mask_row(self, packed: PackedRow, rng: np.random.Generator) -> Example:
        """Return a row with masked tokens."""
        return self.mask_positions(packed, self.select(packed, rng), rng)

    def select(self, packed: PackedRow, rng: np.random.Generator) -> MaskSelection:
        """Select the tokens of a row to mask."""
        strategy = self.options.mask_strategy
        budget = mask_budget(strategy, packed, self.options.mask_prob)
        return select_mask_positions(strategy, packed, budget, rng, self.vocabulary.starts_word)

    def mask_positions(
        self, packed: PackedRow, selection: MaskSelection, rng: np.random.Generator
    ) -> Example:
        """Return a row with the selected tokens masked, and their original ids as labels."""
        planes = packed.arrays(token_types=self.uses_token_types)
        positions = selection.positions
        planes["input_ids"] = apply_mask(
            packed.input_ids, selection, self.vocabulary, self.options, rng
        )
        return Example(
            planes,
            values={"labels": packed.input_ids[positions]},
            positions={"label_positions": ("input_ids", positions)},
            counts={MASKED_LM: len(positions)},
        )

    @override
    def max_values(self, batch: Batch) -> dict[str, int]:
        return dict.fromkeys(("labels", "label_positions"), self.max_masked)

    @property
    def max_masked(self) -> int:
        """Largest number of masked tokens per row, by any strategy; see ``mask_budget``."""
        fraction: float = self.options.mask_prob
        return max(1, math.ceil(self.length * fraction))

    @property
    def uses_token_types(self) -> bool:
        """``True`` if the model has token-type embeddings."""
        return getattr(self.config, "type_vocab_size", 0) > 1

    @override
    def forward(self, model: "nn.Module", batch: "Mapping[str, Tensor]") -> Outputs:
        logits, _ = self.predict_tokens(model, batch)
        return Outputs(logits)

    def predict_tokens(
        self, model: "nn.Module", batch: "Mapping[str, Tensor]", *further: "Tensor"
    ) -> "tuple[dict[str, Tensor | VocabularyProjection], Tensor]":
        """Run the model once; return the logits of each of ``token_terms``.

        Args:
            model: an encoder with a head for masked language modelling.
            batch: tensors of a ``Batch``.
            *further: positions in the flattened rows, (n,) each, whose hidden states are needed.

        Returns:
            The logits, (tokens, vocabulary) each, or the projections to them; and the hidden
            states at the further positions, (n, hidden).
        """
        import torch

        positions = [batch[name] for name, _ in self.token_terms.values()]
        hidden = encode_at(model, model_inputs(batch), torch.cat([*positions, *further]))
        *token_states, further_states = hidden.tensor_split(
            np.cumsum([len(places) for places in positions]).tolist()
        )
        logits = {}
        for term, states in zip(self.token_terms, token_states, strict=True):
            logits[term] = predict(model, states)
        return logits, further_states

    @override
    def scored_rows(self, batch: "Mapping[str, Tensor]", term: str) -> "Tensor | None":
        if term not in self.token_terms:
            return None
        rows = value_rows(batch, self.token_terms[term][0], self.label_array)
        return None if rows is None else rows.indices

    @override
    def loss(self, outputs: Outputs, batch: "Mapping[str, Tensor]") -> LossOutput:
        rows = value_rows(batch, "label_positions", self.label_array)
        return cross_entropy_sum(outputs.logits[MASKED_LM], batch["labels"], MASKED_LM, rows)


INPUTS = ("input_ids", "document_ids", "token_type_ids", "position_ids")


def model_inputs(tensors: "Mapping[str, Tensor]") -> "dict[str, Tensor]":
    """Return the tensors of a batch that are arguments of an encoder."""
    return {name: tensors[name] for name in INPUTS if name in tensors}
