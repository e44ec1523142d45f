"""Word order, jointly with masked language modelling (Wang et al. 2019, arXiv:1908.04577).

5 % of the trigrams of unmasked tokens are shuffled, and the model predicts the original token at
each of their positions by the head of masked language modelling (section 2.2, the word structural
objective). Both losses have the same weight.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from zoo.objectives.base import Batch, Example, LossOutput, Outputs
from zoo.objectives.examples.packing import PackedRow
from zoo.objectives.examples.vocabulary import Ids
from zoo.objectives.losses.predictions import cross_entropy_sum, predict_at
from zoo.objectives.masked import MASKED_LM, MaskedLanguageModelling, MaskedOptions, model_inputs
from zoo.objectives.options import Options

if TYPE_CHECKING:
    from torch import Tensor, nn

WORD_ORDER = "word-order"  # the loss term
SPAN = 3  # tokens that are shuffled together


class WordOrderOptions(MaskedOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of masking and of shuffling.

    Attributes:
        shuffle_prob: fraction of the trigrams of unmasked tokens that is shuffled.
    """

    shuffle_prob: float = 0.05

    def __post_init__(self) -> None:
        """Check the fractions.

        Raises:
            ValueError: a fraction is out of its range.
        """
        super().__post_init__()
        self.check_fraction("shuffle_prob")


def select_trigrams(free: Ids, fraction: float, rng: np.random.Generator) -> Ids:
    """Return the positions of trigrams to shuffle, (n, 3), without overlaps.

    Args:
        free: (length,), int64: the segment of each token that may be shuffled, 0 for others.
        fraction: fraction of the trigrams within a segment to select, at least one.
        rng: random generator.
    """
    starts = np.flatnonzero((free[:-2] > 0) & (free[:-2] == free[1:-1]) & (free[:-2] == free[2:]))
    taken = np.zeros(len(free), dtype=bool)
    chosen = list[int]()
    for start in rng.permutation(starts).tolist():
        if len(chosen) == max(1, round(fraction * len(starts))):
            break
        if not taken[start : start + SPAN].any():
            taken[start : start + SPAN] = True
            chosen.append(start)
    return np.array(sorted(chosen), dtype=np.int64)[:, None] + np.arange(SPAN)


class WordOrder(MaskedLanguageModelling):
    """Predicts masked tokens, and the order of shuffled ones."""

    name: ClassVar[str] = "masked-lm+word-order"
    options_type: ClassVar[type[Options]] = WordOrderOptions

    @property
    def loss_weights(self) -> Mapping[str, float]:
        """Loss term -> weight; both are the same."""
        return {MASKED_LM: 1.0, WORD_ORDER: 1.0}

    @property
    def visible_labels(self) -> Mapping[str, float]:
        """Loss term -> share of visible labels; shuffled tokens are all in the inputs."""
        return {**super().visible_labels, WORD_ORDER: 1.0}

    def mask_row(self, packed: PackedRow, rng: np.random.Generator) -> Example:
        """Return a row with masked and with shuffled tokens."""
        example = super().mask_row(packed, rng)
        free = packed.document_ids * packed.is_text
        free[example.positions["label_positions"][1]] = 0
        trigrams = select_trigrams(free, self.options.shuffle_prob, rng)
        ids = example.arrays["input_ids"]
        ids[trigrams] = rng.permuted(ids[trigrams], axis=1)
        positions = trigrams.flatten()
        return Example(
            example.arrays,
            values={**example.values, "order_labels": packed.input_ids[positions]},
            positions={**example.positions, "order_positions": ("input_ids", positions)},
            counts={**example.counts, WORD_ORDER: len(positions)},
        )

    def max_values(self, batch: Batch) -> dict[str, int]:
        """Return the number of masked and of shuffled tokens of a full row; see ``Objective``."""
        most = SPAN * max(1, round(self.options.shuffle_prob * self.length))
        return super().max_values(batch) | dict.fromkeys(("order_labels", "order_positions"), most)

    def forward(self, model: "nn.Module", batch: "Mapping[str, Tensor]") -> Outputs:
        """Return the logits of the masked and of the shuffled tokens."""
        hidden = model.encode(**model_inputs(batch))  # type: ignore[operator]
        return Outputs(
            {
                MASKED_LM: predict_at(model, hidden, batch["label_positions"]),
                WORD_ORDER: predict_at(model, hidden, batch["order_positions"]),
            }
        )

    def loss(self, outputs: Outputs, batch: "Mapping[str, Tensor]") -> LossOutput:
        """Compute the cross-entropy of the masked and of the shuffled tokens."""
        masked = cross_entropy_sum(outputs.logits[MASKED_LM], batch["labels"], MASKED_LM)
        order = cross_entropy_sum(outputs.logits[WORD_ORDER], batch["order_labels"], WORD_ORDER)
        accuracy = {"word_order_accuracy": order.metrics["accuracy"]}
        return LossOutput(sums=masked.sums | order.sums, metrics=masked.metrics | accuracy)
