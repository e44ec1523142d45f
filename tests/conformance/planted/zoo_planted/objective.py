"""An objective: the first tokens of each row are masked and predicted."""

from typing import Any, ClassVar

import numpy as np

from zoo.objectives.base import Example
from zoo.objectives.examples.packing import PackedRow
from zoo.objectives.masked import MASKED_LM, MaskedLanguageModelling

COUNT = 2  # masked tokens of a row


class FirstTokens(MaskedLanguageModelling):
    """Predicts the first tokens of each row."""

    name: ClassVar[str] = "first-tokens"

    @property
    def loss_weights(self) -> dict[str, float]:
        """Loss term -> weight."""
        return {MASKED_LM: 1.0}

    @property
    def visible_labels(self) -> dict[str, float]:
        """Loss term -> share of visible labels."""
        return {}

    def max_values(self, batch: Any) -> dict[str, int]:
        """Return the number of masked tokens of a row; see ``Objective``."""
        return dict.fromkeys(("labels", "label_positions"), COUNT)

    def mask_row(self, packed: PackedRow, rng: np.random.Generator) -> Example:
        """Return a row whose first tokens of text are masked."""
        arrays = packed.arrays(token_types=self.uses_token_types)
        positions = np.flatnonzero(packed.is_text)[:COUNT]
        labels = packed.input_ids[positions]
        arrays["input_ids"] = packed.input_ids.copy()
        arrays["input_ids"][positions] = self.vocabulary.special_token_id("mask")
        return Example(
            arrays,
            values={"labels": labels},
            positions={"label_positions": ("input_ids", positions)},
            counts={MASKED_LM: len(positions)},
        )
