"""Bidirectional language modelling over streams of sentences (section 3.1 of the paper).

The examples are as in the released code (allenai/bilm-tf, ``bilm/data.py`` and
``bilm/training.py``): there are two streams of words. In the forward stream, each sentence is
``<S> w1 ... wn </S>``, and each word but the last has the next one as label; in the backward one,
sentences have the same order, and each is reversed: ``</S> wn ... w1 <S>``. Both have n + 1 steps
per sentence. A row is a window of a fixed number of steps of both, across sentences, and windows
are consecutive: the LSTMs start each with the final state of the one before, without gradients.
Both directions share word embeddings and softmax. The loss is the mean of both directions.

The backward LSTMs start with the last word of a row, so the window of the backward stream is
reversed, which is the order of a text.

In training, the softmax may be over a sample of the words, one for each direction, drawn for the
rows of a micro-batch, as the released code draws one for each device. It depends on the seed, the
step and the first of these rows. Validation is always over all words.

Labels are words of the model's vocabulary; any other word has the label ``<UNK>``. The tokenizer
may have more words, the most frequent first: a word outside of the model's vocabulary is still an
input by its characters, as in the released code. A corpus only stores token ids, so a word that
the tokenizer does not have is an input with the characters of ``<UNK>``.

Two things differ from the released code. Documents are shuffled once, and their sentences are not,
so that the carried state has the context of a document. And in validation every row starts with
zeros, where the released code carries the state (``training.py``, ``test``): the rows are sampled
from all of the held-out texts, not consecutive, and a trained model is used without a carried
state as well. Validation losses are therefore a little higher than on a stream.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.data.corpus import Split
from zoo.data.document_stream import Documents, DocumentStream
from zoo.data.offsets import Offsets
from zoo.errors import UsageError
from zoo.families.config import Config
from zoo.nn.heads import VocabularyProjection
from zoo.nn.layers.recurrent import RecurrentState
from zoo.objectives.base import Batch, Example, ExampleDataset, LossOutput, Objective, Outputs
from zoo.objectives.examples.vocabulary import TokenizerView
from zoo.objectives.losses.cross_entropy import summed_cross_entropy
from zoo.objectives.losses.sampled_softmax import (
    SampledOptions,
    SampledWords,
    log_uniform_sample,
    sampled_logits,
)
from zoo.objectives.options import Options
from zoo.overrides import override
from zoo_elmo.characters import BEGIN_SENTENCE, END_SENTENCE, boundary, word_ids
from zoo_elmo.config import ElmoConfig

DIRECTIONS = ("forward", "backward")  # the loss terms
_ARRAYS = ("forward", "forward_targets", "backward", "backward_targets")


class SentenceSteps(Documents):
    """The documents of a split in steps: each word of a sentence, and the end of the sentence."""

    # The address of a step is the offset of its word, plus the number of sentences before it.

    def __init__(self, split: Split) -> None:
        self.split = split
        self.order = split.order
        self.key = f"{split.key} sentence steps" if split.key else ""

    @property
    @override
    def num_documents(self) -> int:
        return self.split.num_documents

    @override
    def document_span(self, number: int) -> tuple[int, int]:
        start, end = self.split.document_span(number)
        first_sentence, last_sentence = self.split.sentence_span(number)
        return start + first_sentence, end + last_sentence

    @override
    def document_spans(self, first: int, last: int) -> Offsets:
        sentences = self.split.sentence_spans(first, last)
        return self.split.document_spans(first, last) + sentences

    def sentence_start(self, sentence: int) -> int:
        """Return the address of the first step of a sentence, or after the last sentence."""
        return self.split.sentence_starts[sentence] + sentence

    def sentence_at(self, address: int) -> int:
        """Return the sentence of a step."""
        sentences = range(len(self.split.sentences) - 1)
        return bisect_right(sentences, address, key=self.sentence_start) - 1


class WindowDataset(ExampleDataset):
    """Windows of both streams; the steps after the last full window are dropped."""

    def __init__(self, objective: "BidirectionalLm", split: Split, seed: int) -> None:
        self.split = split
        self.length = objective.length
        self.sampled = objective.options.num_sampled is not None
        self.begin = objective.vocabulary.special_token_id("bos")
        self.end = objective.vocabulary.special_token_id("eos")
        self.steps = SentenceSteps(split)
        self.stream = DocumentStream(self.steps, seed)

    def __len__(self) -> int:
        return len(self.stream) // self.length

    @override
    def example(self, index: int, rng: np.random.Generator) -> Example:
        """The only draw is the seed of the sampled softmax."""
        first_step = index * self.length
        pieces = []
        for start, end in self.stream.spans(first_step, first_step + self.length):
            sentence = self.steps.sentence_at(start)
            while (first := self.steps.sentence_start(sentence)) < end:
                steps = self._sentence_steps(sentence)
                pieces.append(steps[:, max(start - first, 0) : end - first])
                sentence += 1
        forward, backward = np.split(np.concatenate(pieces, axis=1), 2)
        values = {}
        if self.sampled:
            values["sample"] = rng.integers(2**63, size=1)
        return Example(
            dict(zip(_ARRAYS, (*forward, *backward[:, ::-1]), strict=True)),
            values=values,
            counts=dict.fromkeys(DIRECTIONS, self.length),
        )

    def _sentence_steps(self, sentence: int) -> NDArray[np.int64]:
        """Return inputs and labels of both streams, (4, steps), in the order of the streams."""
        start, end = self.split.sentence_starts.pair(sentence)
        words = np.concatenate([[self.begin], self.split.read(start, end), [self.end]])
        reversed_words = words[::-1]
        return np.stack([words[:-1], words[1:], reversed_words[:-1], reversed_words[1:]])


class BidirectionalLm(Objective):
    """Predicts the next and the previous word of every word.

    A batch has ``character_ids``, (words, characters), int64, of each distinct word;
    ``word_indices``, (2, rows, length), int64: the indices of these words in the forward and in the
    backward stream; and ``targets``, (2, rows, length), int64: the labels, ids of the vocabulary.
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
        model_name = type(vocabulary.tokenizer.model).__name__
        if model_name != "WordLevel":
            raise UsageError(
                f"{self.name} reads whole words, and the tokenizer ({model_name}) has pieces of "
                "words",
                "train one with `--tokenizer train`",
            )
        self.unknown = vocabulary.special_token_id("unk")
        highest_id = max(vocabulary.special_token_id(role) for role in ("bos", "eos", "unk"))
        if highest_id >= config.vocab_size:
            raise UsageError(
                f"config.vocab_size is {config.vocab_size}, and words of the tokenizer that are "
                f"always told, such as <UNK>, have numbers up to {highest_id}",
                "give more words, or another --tokenizer",
            )
        self.options.check_samples(config.vocab_size)

    @property
    @override
    def loss_weights(self) -> Mapping[str, float]:
        """Loss term -> weight in the total loss; the mean of both directions."""
        return dict.fromkeys(DIRECTIONS, 0.5)

    @cached_property
    def characters(self) -> NDArray[np.int16]:
        """Character ids of each word of the tokenizer, (words, characters)."""
        length = self.config.max_characters
        ids = self.vocabulary.tokenizer.get_vocab()
        characters = np.zeros((max(ids.values()) + 1, length), dtype=np.int16)
        for word, token_id in ids.items():
            characters[token_id] = word_ids(word, length)
        for role, mark in (("bos", BEGIN_SENTENCE), ("eos", END_SENTENCE)):
            characters[self.vocabulary.special_token_id(role)] = boundary(mark, length)
        return characters

    @override
    def dataset(self, split: Split, seed: int) -> ExampleDataset:
        return WindowDataset(self, split, seed)

    @override
    def collate(self, examples: Sequence[Example]) -> Batch:
        """Collate examples; the characters of each distinct word appear once."""
        arrays_of_rows = np.array([[row.arrays[name] for row in examples] for name in _ARRAYS])
        inputs = arrays_of_rows[::2]
        labels = arrays_of_rows[1::2]
        words, indices = np.unique(inputs, return_inverse=True)
        arrays = {
            "character_ids": self.characters[words].astype(np.int64),
            "word_indices": indices.reshape(inputs.shape),
            "targets": np.where(labels < self.config.vocab_size, labels, self.unknown),
        }
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
        if "sample" in examples[0].values:
            rng = torch.Generator().manual_seed(int(examples[0].values["sample"][0]))
            samples = []
            tries = []
            for _ in DIRECTIONS:
                sample = log_uniform_sample(self.config.vocab_size, self.options.num_sampled, rng)
                samples.append(sample.words)
                tries.append(sample.num_tries)
            tensors["samples"] = torch.stack(samples)
            tensors["tries"] = torch.tensor(tries)
        counts = {}
        for direction in DIRECTIONS:
            counts[direction] = sum(row.counts[direction] for row in examples)
        return Batch(tensors, counts, rows=len(examples), tokens=len(examples) * self.length)

    @override
    def forward(self, model: nn.Module, batch: Mapping[str, Tensor]) -> Outputs:
        module: Any = model
        words = module.embeddings(batch["character_ids"].unsqueeze(0)).squeeze(0)
        halves = zip(batch["word_indices"], words.chunk(2, dim=-1), strict=True)
        embeddings = torch.cat([F.embedding(positions, half) for positions, half in halves], dim=-1)
        mask = torch.ones_like(batch["word_indices"][0], dtype=torch.bool)
        state = RecurrentState(batch)
        hidden = module.directions(module.run_lstms(embeddings, mask, state))
        use_sample = model.training and "samples" in batch
        logits = {}
        labels = {}
        for number, direction in enumerate(DIRECTIONS):
            sample = None
            if use_sample:
                sample = SampledWords(batch["samples"][number], batch["tries"][number])
            logits[direction], labels[direction] = sampled_logits(
                module.head,
                hidden[number].flatten(0, 1),
                batch["targets"][number].flatten(),
                sample,
            )
        return Outputs(logits, labels, state.ended)

    @override
    def loss(self, outputs: Outputs, batch: Mapping[str, Tensor]) -> LossOutput:
        sums = {}
        for direction, logits in outputs.logits.items():
            labels = outputs.labels[direction]
            if isinstance(logits, VocabularyProjection):
                sums[direction], _ = summed_cross_entropy(logits, labels)
            else:
                sums[direction] = F.cross_entropy(logits, labels, reduction="none").sum()
        return LossOutput(sums, recurrent_state=outputs.recurrent_state)
