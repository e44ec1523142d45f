"""Sequence autoencoding: a text, and then the same text again (Dai and Le 2015)."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from zoo.data.packing import cut_documents, no_place_for_text
from zoo.objectives.base import Batch, Example, ExampleDataset
from zoo.objectives.causal import TERM, CausalLanguageModelling
from zoo.objectives.examples.packing import pack, without_special_tokens
from zoo.overrides import override

if TYPE_CHECKING:
    from zoo.data.corpus import Split

MIN_HALF = 3  # Tokens of half of a row: its end, and a text that is longer than that.


class AutoencoderDataset(ExampleDataset):
    """Packed rows of texts that are written twice."""

    def __init__(self, objective: "SequenceAutoencoder", split: "Split", seed: int) -> None:
        self.length = objective.length
        self.pad = objective.vocabulary.pad_id
        self.end = np.array([objective.vocabulary.special_token_id("eos")])
        self.split = split
        # A text of n tokens takes 2 n + 1 inputs, so that n + 1 are at most half of a row, rounded
        # up.
        half = (self.length + 1) // 2
        if half < MIN_HALF:
            raise no_place_for_text(self.length)
        self.layout = cut_documents(split, length=half, special_tokens=1, seed=seed)

    def __len__(self) -> int:
        return len(self.layout)

    @override
    def example(self, index: int, rng: np.random.Generator) -> Example:
        """Return both copies of the texts of a row, and the second as labels; no random draws."""
        inputs = []
        labels_by_text = []
        positions_by_text = []
        first = 0
        for start, end in self.layout.row(index):
            text = self.split.read(start, end)
            ids = np.concatenate([text, self.end, text])
            inputs.append(without_special_tokens(ids))
            labels_by_text.append(np.concatenate([text, self.end]))
            positions_by_text.append(np.arange(first + len(text), first + len(ids)))
            first += len(ids)
        packed = pack(inputs, length=self.length, pad=self.pad)
        labels = np.concatenate(labels_by_text)
        return Example(
            packed.arrays(token_types=False),
            values={"labels": labels},
            positions={"label_positions": ("input_ids", np.concatenate(positions_by_text))},
            counts={TERM: len(labels)},
        )


class SequenceAutoencoder(CausalLanguageModelling):
    """Reads a text, and predicts the same text."""

    # Dai and Le 2015 (arXiv:1511.01432, section 2, figure 1): the inputs are ``W X Y Z <eos> W X Y
    # Z``, and the labels ``W X Y Z <eos>`` from ``<eos>`` on. One network reads and writes. The
    # loss is of what it writes.
    #
    # There, the network is recurrent, and its state after the text is all that it knows of it. A
    # Transformer attends to the text, so that it learns to copy, and need not keep a text in one
    # state. Documents that are longer than half of a row are cut into several texts; there,
    # gradients are truncated after 400 steps.

    name: ClassVar[str] = "sequence-autoencoder"
    scores_all_tokens: ClassVar[bool] = False

    @property
    @override
    def loss_weights(self) -> Mapping[str, float]:
        return {TERM: 1.0}

    @property
    @override
    def visible_labels(self) -> Mapping[str, float]:
        # The first copy has all of them.
        return {TERM: 1.0}

    @override
    def dataset(self, split: "Split", seed: int) -> ExampleDataset:
        return AutoencoderDataset(self, split, seed)

    @override
    def max_values(self, batch: Batch) -> dict[str, int]:
        return dict.fromkeys(("labels", "label_positions"), (self.length + 1) // 2)
