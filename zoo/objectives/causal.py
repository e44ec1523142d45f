"""Next-token prediction, from left to right (Radford et al. 2018 and 2019).

A document is read as the transitions from each of its tokens to the next. Where the tokenizer has
a token that ends a text (role ``eos``), it stands before a document and after it, as it stands
between documents in the published training streams: the first token is told from it, and a
document's end is told, too. Transitions are cut into rows, so a stretch that starts in the middle
of a document reads the token before it without telling it, and only the stretch that a document
ends in tells an end. In an epoch, every token of the corpus is told once, and so is the end of
every document. A tokenizer without such a token adds nothing: there, a document's first token is
read and not told.

A row holds several texts. None sees another, and positions start anew in each.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from zoo.data.packing import TemplateBudget, pack_documents
from zoo.objectives.base import (
    Batch,
    Example,
    ExampleDataset,
    LossOutput,
    Objective,
    Outputs,
    cross_entropy_sum,
    predict_at,
)
from zoo.objectives.examples.packing import pack, without_special_tokens
from zoo.objectives.examples.vocabulary import Ids, TokenizerView
from zoo.objectives.masked import model_inputs

if TYPE_CHECKING:
    from torch import Tensor, nn

    from zoo.data.corpus import Offsets, Split

TERM = "causal-lm"  # the loss term


def boundary_tokens(vocabulary: TokenizerView) -> tuple[Ids, Ids]:
    """Return what stands before a document and after it: a token each, or nothing."""
    if "eos" not in vocabulary.info.special:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    after = vocabulary.special_token_id("eos")
    before = vocabulary.special_token_id("bos") if "bos" in vocabulary.info.special else after
    return np.array([before]), np.array([after])


class TransitionDocuments:
    """A split, counted in steps from one token to the next.

    Args:
        split: the corpus.
        before: what each document starts with, beside its own tokens.
        after: what each ends with.
    """

    def __init__(self, split: "Split", before: Ids, after: Ids) -> None:
        self.split, self.before, self.after = split, before, after
        self._tokens = split.document_starts()
        steps = np.diff(self._tokens) + (len(before) + len(after) - 1)
        self._steps: Offsets = np.cumsum([0, *np.maximum(steps, 0)], dtype=np.int64)

    def document_starts(self) -> "Offsets":
        """See ``zoo.data.packing.Documents``; in transitions."""
        return self._steps

    def read(self, start: int, end: int) -> Ids:
        """Return the tokens that some transitions of one document go through, (end - start + 1,).

        The first is read alone, the last is told alone, those between are both.
        """
        document = int(np.searchsorted(self._steps, start, side="right")) - 1
        first, behind = (int(place) for place in self._tokens[document : document + 2])
        # places in the document with what stands around it; the text itself is in the middle
        a, b = (int(place - self._steps[document]) for place in (start, end + 1))
        shift, size = len(self.before), behind - first
        text = slice(min(max(a - shift, 0), size), min(max(b - shift, 0), size))
        pieces = [self.before[a:b]]
        if text.start < text.stop:
            pieces.append(self.split.read(first + text.start, first + text.stop))
        if b > shift + size:
            pieces.append(self.after)
        return np.concatenate(pieces)


class CausalDataset(ExampleDataset):
    """Rows of transitions."""

    def __init__(self, objective: "CausalLanguageModelling", split: "Split", seed: int) -> None:
        self.length, self.pad = objective.length, objective.vocabulary.pad_id
        self.steps = TransitionDocuments(split, *boundary_tokens(objective.vocabulary))
        measure = partial(TemplateBudget, self.length, special_tokens=0)
        self.layout = pack_documents(self.steps, length=self.length, new_row=measure, seed=seed)

    def __len__(self) -> int:
        """See ``Rows``."""
        return len(self.layout)

    def example(self, index: int, rng: np.random.Generator) -> Example:
        """See ``Rows``; nothing is drawn."""
        tokens = [self.steps.read(*stretch) for stretch in self.layout.row(index)]
        packed = pack(
            [without_special_tokens(each[:-1]) for each in tokens], length=self.length, pad=self.pad
        )
        labels = np.concatenate([each[1:] for each in tokens])
        return Example(
            packed.arrays(token_types=False),
            values={"labels": labels},
            positions={"places": ("input_ids", np.flatnonzero(packed.document_ids))},
            counts={TERM: len(labels)},
        )


class CausalLanguageModelling(Objective):
    """Tell which token comes next."""

    name: ClassVar[str] = TERM
    head: ClassVar[str] = "causal-lm"

    def dataset(self, split: "Split", seed: int) -> ExampleDataset:
        """See ``Objective``."""
        return CausalDataset(self, split, seed)

    def collate(self, examples: Sequence[Example]) -> Batch:
        """See ``Objective``. Where each row is one text and full, nothing is said of masks and
        positions, which attention is faster without.
        """
        batch = super().collate(examples)
        if bool((batch.tensors["document_ids"] == 1).all()):
            del batch.tensors["document_ids"], batch.tensors["position_ids"]
        return batch

    def forward(self, model: "nn.Module", batch: "Mapping[str, Tensor]") -> Outputs:
        """Return the logits of the next token of every token."""
        module: Any = model
        hidden = module.encode(**model_inputs(batch))
        return Outputs({TERM: predict_at(module, hidden, batch["places"])})

    def loss(self, outputs: Outputs, batch: "Mapping[str, Tensor]") -> LossOutput:
        """Compute the cross-entropy of the next tokens."""
        return cross_entropy_sum(outputs.logits[TERM], batch["labels"], TERM)
