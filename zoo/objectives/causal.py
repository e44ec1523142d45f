"""Causal language modelling: next-token prediction (Radford et al. 2018 and 2019)."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from zoo.data.document_stream import Documents
from zoo.data.packing import cut_documents
from zoo.objectives.base import Batch, Example, ExampleDataset, LossOutput, Objective, Outputs
from zoo.objectives.examples.packing import pack, without_special_tokens
from zoo.objectives.examples.vocabulary import Ids, TokenizerView
from zoo.objectives.losses.predictions import cross_entropy_sum, predict_at, value_rows
from zoo.objectives.masked import model_inputs
from zoo.overrides import override

if TYPE_CHECKING:
    from torch import Tensor, nn

    from zoo.data.corpus import Split
    from zoo.data.offsets import Offsets

TERM = "causal-lm"  # the loss term


def boundary_tokens(vocabulary: TokenizerView) -> tuple[Ids, Ids]:
    """Return the special tokens before and after a document, (1,) or (0,) each."""
    if "eos" not in vocabulary.info.special:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    end = vocabulary.special_token_id("eos")
    start = end
    if "bos" in vocabulary.info.special:
        start = vocabulary.special_token_id("bos")
    return np.array([start]), np.array([end])


class TransitionDocuments(Documents):
    """The documents of a split as transitions from one token to the next."""

    # A document of n tokens, and those before and after it, has one transition less than tokens.
    # The address of its first transition is the one of its first token, plus a place for each
    # special token of the documents before it, so that no sum over documents is needed.

    def __init__(self, split: "Split", before: Ids, after: Ids) -> None:
        self.split = split
        self.before = before
        self.after = after
        self.order = split.order
        self.special_count = len(before) + len(after)
        self.key = f"{split.key} {self.special_count}" if split.key else ""

    @property
    @override
    def num_documents(self) -> int:
        return self.split.num_documents

    @override
    def document_span(self, number: int) -> tuple[int, int]:
        start, end = self.split.document_span(number)
        transitions = max(0, end - start + self.special_count - 1)
        start += number * self.special_count
        return start, start + transitions

    @override
    def document_spans(self, first: int, last: int) -> "Offsets":
        tokens = self.split.document_spans(first, last)
        starts = tokens[:, 0] + np.arange(first, last) * self.special_count
        transitions = tokens[:, 1] - tokens[:, 0] + (self.special_count - 1)
        return np.stack([starts, starts + np.maximum(transitions, 0)], axis=1)

    def read(self, start: int, end: int) -> Ids:
        """Return the tokens of some transitions of one document, (end - start + 1,), int64.

        All but the last are inputs, and all but the first are labels.
        """
        documents = range(self.num_documents)
        document = bisect_right(documents, start, key=self._start) - 1
        text_start, text_end = self.split.document_span(document)
        text_size = text_end - text_start
        # Positions in the document including its special tokens.
        first = start - self._start(document)
        last = end + 1 - self._start(document)
        # Positions in its text.
        shift = len(self.before)
        text_first = min(max(first - shift, 0), text_size)
        text_last = min(max(last - shift, 0), text_size)
        pieces = [self.before[first:last]]
        if text_first < text_last:
            pieces.append(self.split.read(text_start + text_first, text_start + text_last))
        if last > shift + text_size:
            pieces.append(self.after)
        return np.concatenate(pieces)

    def _start(self, document: int) -> int:
        """Return the address of the first transition of a document."""
        return self.split.document_span(document)[0] + document * self.special_count


class CausalDataset(ExampleDataset):
    """Packed rows of transitions."""

    def __init__(self, objective: "CausalLanguageModelling", split: "Split", seed: int) -> None:
        self.length = objective.length
        self.pad = objective.vocabulary.pad_id
        self.steps = TransitionDocuments(split, *boundary_tokens(objective.vocabulary))
        self.layout = cut_documents(self.steps, length=self.length, special_tokens=0, seed=seed)

    def __len__(self) -> int:
        return len(self.layout)

    @override
    def example(self, index: int, rng: np.random.Generator) -> Example:
        """Return inputs and next tokens of a row; ``rng`` is not used."""
        inputs = []
        labels_by_segment = []
        for start, end in self.layout.row(index):
            ids = self.steps.read(start, end)
            inputs.append(without_special_tokens(ids[:-1]))
            labels_by_segment.append(ids[1:])
        packed = pack(inputs, length=self.length, pad=self.pad)
        labels = np.concatenate(labels_by_segment)
        return Example(
            packed.arrays(token_types=False),
            values={"labels": labels},
            positions={"label_positions": ("input_ids", np.flatnonzero(packed.document_ids))},
            counts={TERM: len(labels)},
        )


class CausalLanguageModelling(Objective):
    """Predicts the next token of every token."""

    # A document is a sequence of transitions from each token to the next. If the tokenizer has an
    # end-of-text token (role ``eos``), it is put before and after a document, as it separates
    # documents in the published training streams: the first token is predicted from it, and the end
    # of a document is also predicted. Rows are cut between transitions: a segment that starts
    # inside a document has the token before it as input only, and only the last segment of a
    # document predicts its end. An epoch predicts every token and every document's end once.
    # Without an end-of-text token, a document's first token is input only.
    #
    # A row packs several segments. They do not attend to each other, and positions restart in each.

    name: ClassVar[str] = TERM
    head: ClassVar[str] = "causal-lm"
    scores_all_tokens: ClassVar[bool] = True

    @property
    @override
    def label_tensors(self) -> Mapping[str, str]:
        return {TERM: "labels"}

    @override
    def dataset(self, split: "Split", seed: int) -> ExampleDataset:
        return CausalDataset(self, split, seed)

    @override
    def collate(self, examples: Sequence[Example]) -> Batch:
        """Collate examples; masks and positions are dropped where every row is one full segment."""
        # Attention is faster without an explicit mask.
        batch = super().collate(examples)
        if bool((batch.tensors["document_ids"] == 1).all()):
            del batch.tensors["document_ids"], batch.tensors["position_ids"]
        return batch

    @override
    def max_values(self, batch: Batch) -> dict[str, int]:
        return dict.fromkeys(("labels", "label_positions"), self.length)

    @override
    def forward(self, model: "nn.Module", batch: "Mapping[str, Tensor]") -> Outputs:
        module: Any = model
        hidden = module.encode(**model_inputs(batch))
        return Outputs({TERM: predict_at(module, hidden, batch["label_positions"])})

    @override
    def scored_rows(self, batch: "Mapping[str, Tensor]", term: str) -> "Tensor | None":
        rows = value_rows(batch, "label_positions")
        return None if rows is None else rows.indices

    @override
    def loss(self, outputs: Outputs, batch: "Mapping[str, Tensor]") -> LossOutput:
        rows = value_rows(batch, "label_positions")
        return cross_entropy_sum(outputs.logits[TERM], batch["labels"], TERM, rows)
