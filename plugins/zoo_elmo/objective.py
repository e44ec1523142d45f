"""Forward and backward language models over streams of sentences (section 3.1 of the paper).

As the released code does it (allenai/bilm-tf, ``bilm/data.py`` and ``bilm/training.py``): there
are two streams of words. In the first, each sentence reads ``<S> w1 ... wn </S>``, and each word
but the last tells the next; in the second, sentences stand in the same order, and each is turned
round: ``</S> wn ... w1 <S>``. Both have n + 1 steps for a sentence. A row is a window of so many
steps of both, wherever sentences begin and end, and windows follow each other: the LSTMs begin
each with what they ended the one before with, and gradients stop there. Both directions share
characters and softmax. What is minimised is the mean of their losses.

The models read a text and not two streams, and from the right the last word first: so the window
of the second stream is given the other way round, as it would stand in a text.

In training, the softmax may be over a sample of the words: one for each direction, drawn for the
rows that are computed together, as the released code draws one for each device. It depends on the
seed, the step and the first of these rows. Validation is always over all words.

The words that are told are those of the model's vocabulary, and any other is told as ``<UNK>``.
The tokenizer may know more of them, the most frequent first: then a word outside the vocabulary
is read by its characters, as in the released code. A corpus has token numbers alone, so that a
word that the tokenizer does not know either is read as ``<UNK>`` is spelled.

Two things are unlike the released code. Documents are shuffled once, and their sentences are not:
a state that is carried on tells something. And in validation every row begins with zeros, where
the released code carries the state on (``training.py``, ``test``): the rows are a few from all
over the held-out texts, not a stretch of them, and what is trained is used so, a text at a time.
Losses of validation are therefore a little higher than a stream's.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.data.corpus import Split
from zoo.data.rng import generator
from zoo.errors import UsageError
from zoo.families.config import Config
from zoo.nn.layers.recurrent import RecurrentState
from zoo.objectives.base import (
    Batch,
    Example,
    ExampleDataset,
    LossOutput,
    Objective,
    Options,
    Outputs,
)
from zoo.objectives.examples.vocabulary import Ids, TokenizerView
from zoo.objectives.losses.sampled_softmax import (
    SampledOptions,
    SampledWords,
    log_uniform_sample,
    sampled_logits,
)
from zoo_elmo.characters import BEGIN_SENTENCE, END_SENTENCE, boundary, word_ids
from zoo_elmo.config import ElmoConfig

DIRECTIONS = ("forward", "backward")  # the loss terms
_ARRAYS = ("forward", "forward_targets", "backward", "backward_targets")  # read and told


class WindowDataset(ExampleDataset):
    """The steps of both streams, cut into rows. What is left at their end fills no row.

    Args:
        objective: whose rows.
        split: the corpus.
        seed: for the order of the documents.
    """

    def __init__(self, objective: "BidirectionalLm", split: Split, seed: int) -> None:
        self.split, self.length = split, objective.length
        self.sampled = objective.options.num_sampled is not None
        self.begin, self.end = (
            objective.vocabulary.special_token_id(role) for role in ("bos", "eos")
        )
        counts = np.diff(split.documents)
        order = generator(seed, "documents").permutation(len(counts))
        counts, firsts = counts[order], split.documents[:-1][order]
        before = np.cumsum(counts) - counts
        self.sentences = np.arange(counts.sum()) + np.repeat(firsts - before, counts)
        steps = np.diff(split.sentences)[self.sentences] + 1
        self.steps = np.concatenate([[0], np.cumsum(steps)])  # where each sentence's begin

    def __len__(self) -> int:
        """See ``Rows``."""
        return int(self.steps[-1]) // self.length

    def example(self, index: int, rng: np.random.Generator) -> Example:
        """See ``Rows``. What is drawn is a seed for the sample."""
        first = index * self.length
        at = int(np.searchsorted(self.steps, first, side="right")) - 1
        pieces = []
        while (start := int(self.steps[at])) < first + self.length:
            words = self._sentence(int(self.sentences[at]))
            steps = [half for text in (words, words[::-1]) for half in (text[:-1], text[1:])]
            pieces.append(np.stack(steps)[:, max(first - start, 0) : first + self.length - start])
            at += 1
        forward, backward = np.split(np.concatenate(pieces, axis=1), 2)
        return Example(
            dict(zip(_ARRAYS, (*forward, *backward[:, ::-1]), strict=True)),
            values={"sample": rng.integers(2**63, size=1)} if self.sampled else {},
            counts=dict.fromkeys(DIRECTIONS, self.length),
        )

    def _sentence(self, number: int) -> Ids:
        start, end = self.split.sentences[number : number + 2]
        return np.concatenate([[self.begin], self.split.read(int(start), int(end)), [self.end]])


class BidirectionalLm(Objective):
    """Tell the next word from those before it, and the word before from those that follow.

    A batch has ``character_ids``, (words, characters), of each different word once; ``places``,
    (2, rows, length), which of these stand where, in the forward and in the backward stream; and
    ``targets``, (2, rows, length), the words to tell there, by their number in the vocabulary.

    Raises:
        UsageError: the tokenizer has pieces of words, or fewer words than are to be sampled, or
            the words that stand for others are not among those that are told.
    """

    name: ClassVar[str] = "bidirectional-lm"
    head: ClassVar[str] = "bidirectional-lm"
    options_type: ClassVar[type[Options]] = SampledOptions
    stateful: ClassVar[bool] = True
    char_inputs: ClassVar[bool] = True
    config: ElmoConfig

    def __init__(
        self, vocabulary: TokenizerView, config: Config, length: int, options: Any = None
    ) -> None:
        super().__init__(vocabulary, config, length, options)
        kind = type(vocabulary.tokenizer.model).__name__
        if kind != "WordLevel":
            raise UsageError(
                f"{self.name} reads whole words, and the tokenizer ({kind}) has pieces of words",
                "train one with `--tokenizer train`",
            )
        self.unknown = vocabulary.special_token_id("unk")
        told = max(vocabulary.special_token_id(role) for role in ("bos", "eos", "unk"))
        if told >= config.vocab_size:
            raise UsageError(
                f"config.vocab_size is {config.vocab_size}, and words of the tokenizer that are "
                f"always told, such as <UNK>, have numbers up to {told}",
                "give more words, or another --tokenizer",
            )
        self.options.check_samples(config.vocab_size)

    @property
    def loss_weights(self) -> Mapping[str, float]:
        """See ``Objective``: the mean of both directions."""
        return dict.fromkeys(DIRECTIONS, 0.5)

    @cached_property
    def characters(self) -> NDArray[np.int16]:
        """How each word is spelled, (words, characters)."""
        room = self.config.max_characters
        known = self.vocabulary.tokenizer.get_vocab()
        found = np.zeros((max(known.values()) + 1, room), dtype=np.int16)
        for word, number in known.items():
            found[number] = word_ids(word, room)
        for role, mark in (("bos", BEGIN_SENTENCE), ("eos", END_SENTENCE)):
            found[self.vocabulary.special_token_id(role)] = boundary(mark, room)
        return found

    def dataset(self, split: Split, seed: int) -> ExampleDataset:
        """See ``Objective``."""
        return WindowDataset(self, split, seed)

    def collate(self, examples: Sequence[Example]) -> Batch:
        """See ``Objective``; the vector of a word is computed once, wherever it stands."""
        planes = np.array([[row.arrays[name] for row in examples] for name in _ARRAYS])
        read, told = planes[::2], planes[1::2]
        used, places = np.unique(read, return_inverse=True)
        arrays = {
            "character_ids": self.characters[used].astype(np.int64),
            "places": places.reshape(read.shape),
            "targets": np.where(told < self.config.vocab_size, told, self.unknown),
        }
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
        if "sample" in examples[0].values:
            source = torch.Generator().manual_seed(int(examples[0].values["sample"][0]))
            drawn = [
                log_uniform_sample(self.config.vocab_size, self.options.num_sampled, source)
                for _ in DIRECTIONS
            ]
            words, tries = zip(*drawn, strict=True)
            tensors |= {"samples": torch.stack(words), "tries": torch.tensor(tries)}
        counts = {way: sum(row.counts[way] for row in examples) for way in DIRECTIONS}
        return Batch(tensors, counts, rows=len(examples), tokens=len(examples) * self.length)

    def forward(self, model: nn.Module, batch: Mapping[str, Tensor]) -> Outputs:
        """Return the logits of each direction, and the last hidden state of every LSTM."""
        module: Any = model
        words = module.embeddings(batch["character_ids"].unsqueeze(0)).squeeze(0)
        halves = zip(batch["places"], words.chunk(2, dim=-1), strict=True)
        embeddings = torch.cat([F.embedding(places, half) for places, half in halves], dim=-1)
        mask = torch.ones_like(batch["places"][0], dtype=torch.bool)
        state = RecurrentState(batch)
        hidden = module.directions(module.run_lstms(embeddings, mask, state))
        use_sample, logits, labels = model.training and "samples" in batch, {}, {}
        for k, direction in enumerate(DIRECTIONS):
            sample = SampledWords(batch["samples"][k], batch["tries"][k]) if use_sample else None
            logits[direction], labels[direction] = sampled_logits(
                module.head, hidden[k].flatten(0, 1), batch["targets"][k].flatten(), sample
            )
        return Outputs(logits, labels, state.ended)

    def loss(self, outputs: Outputs, batch: Mapping[str, Tensor]) -> LossOutput:
        """Compute the cross-entropy of each direction."""
        sums = {
            direction: F.cross_entropy(logits, outputs.labels[direction], reduction="none").sum()
            for direction, logits in outputs.logits.items()
        }
        return LossOutput(sums, recurrent_state=outputs.recurrent_state)
