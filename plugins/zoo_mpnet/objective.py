"""Masked and permuted language modelling (Song et al. 2020, arXiv:2004.09297, section 2).

Some tokens of a row are selected and predicted one after the other in a random order, each from all
tokens that are not selected, from the selected ones before it, and from the masks of itself and of
those after it. So a prediction depends on earlier ones, as in a permuted language model, and sees
the positions of the whole text, as in a masked one. Selection, the order, and the masks, of which
10 % are a random token and 10 % the token itself, follow the released code (``MaskedDataset`` in
masked_permutation_lm.py of microsoft/MPNet). ``MPNetLM.encode_targets`` is the forward pass.

Two things differ from the code. Special tokens are never selected, as in masked language modelling
here; and tokens only attend to those of their own document.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from zoo.objectives.base import Example, Outputs
from zoo.objectives.losses.predictions import predict_at
from zoo.objectives.masked import MASKED_LM, MaskedLanguageModelling, apply_mask
from zoo.overrides import override

if TYPE_CHECKING:
    from torch import Tensor, nn

    from zoo.objectives.examples.packing import PackedRow

INPUTS = ("input_ids", "order", "targets", "target_ids", "document_ids", "position_ids")


class MaskedAndPermuted(MaskedLanguageModelling):
    """Predicts masked tokens in a random order, each from those before it."""

    name: ClassVar[str] = "masked-and-permuted-lm"
    label_array: ClassVar[str] = "targets"

    @property
    @override
    def loss_weights(self) -> Mapping[str, float]:
        return {MASKED_LM: 1.0}

    @override
    def mask_row(self, packed: "PackedRow", rng: np.random.Generator) -> Example:
        selection = self.select(packed, rng)
        masked_ids = apply_mask(packed.input_ids, selection, self.vocabulary, self.options, rng)
        predicted = rng.permutation(selection.positions)
        count = len(predicted)
        order = np.zeros_like(packed.input_ids)
        order[predicted] = np.arange(1, count + 1)
        targets = np.zeros(self.max_masked, dtype=np.int64)
        targets[:count] = predicted
        target_ids = np.full(self.max_masked, self.vocabulary.pad_id, dtype=np.int64)
        target_ids[:count] = masked_ids[predicted]
        return Example(
            {
                **packed.arrays(token_types=False),
                "order": order,
                "targets": targets,
                "target_ids": target_ids,
            },
            values={"labels": packed.input_ids[predicted]},
            positions={"label_positions": ("targets", np.arange(count))},
            counts={MASKED_LM: count},
        )

    @override
    def forward(self, model: "nn.Module", batch: "Mapping[str, Tensor]") -> Outputs:
        module: Any = model
        hidden = module.encode_targets(**{name: batch[name] for name in INPUTS})
        return Outputs({MASKED_LM: predict_at(module, hidden, batch["label_positions"])})
