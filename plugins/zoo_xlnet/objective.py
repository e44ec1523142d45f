"""Permutation language modelling (arXiv:1906.08237, sections 2.2 to 2.5).

Examples follow the released code (zihangdai/xlnet, data_utils.py). A row has two parts: a
stretch of the corpus, and two segments, ``A <sep> B <sep> <cls>``; see ``zoo_xlnet.stream``. In
each part, a sixth of the tokens is predicted (section 2.3, K = 6), in spans: see ``sample_spans``.
The factorization order (``factorize``) begins with all other tokens of text, and a random one of
the predicted tokens follows. Predictions of the first part do not depend on the second, and those
of the second part may depend on all of the first.

The hidden states of the first part are a memory for the next row (section 2.4): row r of a batch
goes on where row r of the batch before ended, in half of the rows from the end of the corpus to its
start, with the opposite relative positions (section 3.1).

Where paper and released code differ, this follows the code: the length n of a span is drawn with a
probability proportional to 1 / n, where the paper names no distribution; spans begin at words; and
tokens that no span covers are drawn singly, until a sixth of the row is reached. In the code, the
end of a span of n words is found by the first word, so that it is n tokens long, as in the paper.

Two things differ from both. The code draws spans once for several passes over a corpus, here they
differ in each use of a row, as orders do. And its memory begins with zeros, which are attended to;
here, there is none in the first step, nor in validation, whose rows are not consecutive.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from zoo.data.corpus import Split
from zoo.errors import UsageError
from zoo.objectives.base import Batch, Example, ExampleDataset, LossOutput, Objective, Outputs
from zoo.objectives.losses.predictions import cross_entropy_sum, predict_at
from zoo.objectives.options import Options
from zoo_xlnet.backbone import Memory, extend_memory
from zoo_xlnet.config import XLNetConfig
from zoo_xlnet.stream import Ids, MarkedStream, ReversedStream, draw_segments

TERM = "permutation-lm"  # the loss term
END_OF_DOCUMENT = "<eod>"
SPECIAL = 3  # special tokens of a row: <sep>, <sep> and <cls>
MAX_SPAN = 5
_INVERSE = 1 / np.arange(1, MAX_SPAN + 1)
SPAN_PROBS = _INVERSE / _INVERSE.sum()
Flags = NDArray[np.bool_]


class PermutationLanguageModellingOptions(
    Options, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """Options of permutation language modelling.

    Attributes:
        predict_every: K of the paper: one of so many tokens is predicted.
        mem_len: largest number of tokens in the memory; 0 for no memory. The README of the released
            code has 384 for rows of 512.
    """

    predict_every: int = 6
    mem_len: int = 384

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            ValueError: a number is out of its range.
        """
        if self.predict_every < 2:
            raise ValueError(f"predict_every is {self.predict_every}, which is less than 2")
        if self.mem_len < 0:
            raise ValueError(f"mem_len is {self.mem_len}, which is negative")


def sample_spans(
    starts_word: Flags, goal: int, predict_every: int, rng: np.random.Generator
) -> Flags:
    """Select tokens to predict: spans of up to five tokens, each within a context of its own.

    ``_sample_mask`` of the released code. A span of n tokens begins at the first word after a
    random place in the next K n tokens, and the next context begins after the rest of these.

    Args:
        starts_word: whether a token starts a word, (tokens,), bool.
        goal: number of tokens to select.
        predict_every: K.
        rng: random generator.

    Returns:
        (tokens,), bool.
    """
    selected = np.zeros(len(starts_word), dtype=bool)
    count = 0
    at = 0
    words = np.flatnonzero(starts_word)
    while at < len(selected) and count < goal:
        size = min(int(rng.choice(MAX_SPAN, p=SPAN_PROBS)) + 1, goal - count)
        before = int(rng.integers(size * predict_every))
        word = int(np.searchsorted(words, at + before))
        if word == len(words) or words[word] + size >= len(selected):
            break
        end = int(words[word]) + size
        selected[end - size : end] = True
        count = count + size
        at = end + size * predict_every - before
    others = rng.permutation(np.flatnonzero(~selected))
    selected[others[: goal - count]] = True
    return selected


def factorize(parts: Ids, selected: Flags, special: Flags, rng: np.random.Generator) -> Ids:
    """Draw a factorization order: ``_local_perm`` and ``get_dataset`` of the released code.

    A prediction may depend on the tokens whose place in the order is lower than its own. Tokens of
    a part that are neither selected nor special share the lowest place of the part, so that all
    predictions of the part may depend on them. Special tokens are not predicted.

    Args:
        parts: part of each token, in order from 0, (tokens,), int64.
        selected: the tokens of ``sample_spans``, (tokens,), bool.
        special: ``<sep>`` and ``<cls>``, (tokens,), bool.
        rng: random generator.

    Returns:
        The place of each token in the order, (tokens,), int64.
    """
    permuted = np.concatenate([rng.permutation(size) for size in np.bincount(parts)])
    lowest = parts * (len(parts) + 1)
    return np.where(selected | special, lowest + 1 + permuted, lowest)


def hidden_keys(order: Tensor, is_target: Tensor) -> Tensor:
    """Return the keys that predictions may not depend on: ``perm_mask`` of the released code.

    Args:
        order: place of each token, see ``factorize``, (..., tokens), int64.
        is_target: the tokens to predict, (..., tokens), bool. All others may depend on tokens of
            their own place, and so on themselves.

    Returns:
        (..., tokens, tokens), bool.
    """
    below = order + ~is_target  # tokens before this place are seen
    return below[..., :, None] <= order[..., None, :]


class PermutationDataset(ExampleDataset):
    """Rows of the stream from its start to its end, then as many in the opposite direction.

    Args:
        objective: the objective.
        split: the documents.
        seed: seed of the order of the documents.
    """

    def __init__(self, objective: "PermutationLanguageModelling", split: Split, seed: int) -> None:
        self.objective = objective
        stream = MarkedStream(split, objective.end_of_document, seed)
        self.streams = (stream, ReversedStream(stream))
        length = objective.length
        self.rows = max(0, (len(stream) - length) // objective.reuse_len + 1)

    def __len__(self) -> int:
        """See ``ExampleDataset``."""
        return 2 * self.rows

    def example(self, index: int, rng: np.random.Generator) -> Example:
        """See ``ExampleDataset``."""
        objective = self.objective
        direction, row = divmod(index, self.rows)
        stream = self.streams[direction]
        start = row * objective.reuse_len
        middle = start + objective.reuse_len
        room = objective.length - objective.reuse_len - SPECIAL
        segments = draw_segments(stream, middle, room, rng)
        texts = [stream.read(start, middle)]
        texts += [stream.read(*segment) for segment in (segments.first, segments.second)]
        return objective.make_row(texts, direction, rng)


class PermutationLanguageModelling(Objective):
    """Predicts tokens in a random order.

    Raises:
        UsageError: the tokenizer lacks a special token, or rows are too short.
    """

    name: ClassVar[str] = TERM
    head: ClassVar[str] = "masked-lm"
    options_type: ClassVar[type[Options]] = PermutationLanguageModellingOptions
    stateful: ClassVar[bool] = True
    config: XLNetConfig

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.separator, self.classifier = map(self.vocabulary.special_token_id, ("sep", "cls"))
        end = self.vocabulary.tokenizer.token_to_id(END_OF_DOCUMENT)
        if end is None:
            raise UsageError(
                f"the tokenizer has no {END_OF_DOCUMENT}, which {self.name} puts after documents",
                "train one with `--tokenizer train`",
            )
        self.end_of_document: int = end
        if self.length - self.reuse_len < SPECIAL + 2 or self.num_targets < 2:
            raise UsageError(
                f"rows of {self.length} tokens have no place for two segments and predictions",
                "make them longer",
            )

    @property
    def reuse_len(self) -> int:
        """Number of tokens of the first part of a row, which are added to the memory."""
        return self.length // 2

    @property
    def num_targets(self) -> int:
        """Largest number of tokens to predict in a row: fewer where special tokens are selected."""
        return int(self.length // self.options.predict_every)

    def dataset(self, split: Split, seed: int) -> ExampleDataset:
        """See ``Objective``."""
        return PermutationDataset(self, split, seed)

    def make_row(self, texts: list[Ids], direction: int, rng: np.random.Generator) -> Example:
        """Return a row.

        Args:
            texts: token ids of the first part and of both segments.
            direction: 1 if tokens are in reverse order, else 0.
            rng: random generator.
        """
        before, first, second = texts
        sep = [self.separator]
        cls = [self.classifier]
        ids = np.concatenate([before, first, sep, second, sep, cls])
        sizes = [len(before) + len(first) + 1, len(second) + 1, 1]
        special = np.isin(ids, (self.separator, self.classifier))
        selected = self._select(ids, direction, rng)
        parts = (np.arange(len(ids)) >= len(before)).astype(np.int64)
        order = factorize(parts, selected, special, rng)
        targets = np.flatnonzero(selected & ~special)
        padded = np.zeros(self.num_targets, dtype=np.int64)
        padded[: len(targets)] = targets
        return Example(
            arrays={
                "input_ids": ids,
                "token_type_ids": np.repeat(np.arange(3), sizes),
                "document_ids": np.ones_like(ids),
                "order": order,
                "is_target": selected & ~special,
                "targets": padded,
            },
            values={"labels": ids[targets], "direction": np.array([direction])},
            positions={"label_positions": ("targets", np.arange(len(targets)))},
            counts={TERM: len(targets)},
        )

    def _select(self, ids: Ids, direction: int, rng: np.random.Generator) -> Flags:
        """Select the tokens of both parts; words begin where they do in the text."""
        starts = self.vocabulary.starts_word[ids]
        parts = []
        goals = (self.num_targets + 1) // 2, self.num_targets // 2
        step = -1 if direction else 1
        halves = (starts[: self.reuse_len], starts[self.reuse_len :])
        for half, goal in zip(halves, goals, strict=True):
            selected = sample_spans(half[::step], goal, self.options.predict_every, rng)
            parts.append(selected[::step])
        return np.concatenate(parts)

    def max_values(self, batch: Batch) -> dict[str, int]:
        """Return the number of predicted tokens of a row; see ``Objective``."""
        return dict.fromkeys(("labels", "label_positions"), self.num_targets)

    def forward(self, model: nn.Module, batch: Mapping[str, Tensor]) -> Outputs:
        """Return the logits of the predicted tokens, and the memory for the next rows."""
        module: Any = model
        memory = recurrent_memory(batch, len(module.layers))
        hidden, inputs = module.encode_targets(
            batch["input_ids"],
            batch["token_type_ids"],
            hidden_keys(batch["order"], batch["is_target"]),
            batch["targets"],
            memory=memory,
            direction=batch["direction"],
        )
        state = {}
        if self.options.mem_len:
            extended = extend_memory(memory, inputs, self.options.mem_len, self.reuse_len)
            state = {f"memory.{number}": states for number, states in enumerate(extended)}
        logits = predict_at(module, hidden, batch["label_positions"])
        return Outputs({TERM: logits}, recurrent_state=state)

    def loss(self, outputs: Outputs, batch: Mapping[str, Tensor]) -> LossOutput:
        """Compute the cross-entropy of the predicted tokens."""
        output = cross_entropy_sum(outputs.logits[TERM], batch["labels"], TERM)
        return LossOutput(output.sums, output.metrics, outputs.recurrent_state)


def recurrent_memory(batch: Mapping[str, Tensor], layers: int) -> Memory | None:
    """Return the memory that the step before has added to a batch; ``None`` in the first step."""
    if "memory.0" not in batch:
        return None
    return [batch[f"memory.{number}"] for number in range(layers)]
