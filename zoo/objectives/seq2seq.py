"""What all objectives of encoder-decoders share: a source and a target for each text.

Several texts share a row of the encoder, and the same texts a row of the decoder, in the same
order: ``attention_mask`` and ``decoder_attention_mask`` number them from 1, so that each text's
target sees its own source alone. A token that ends a text (role ``eos``) closes each source and
each target, as in the released code of Raffel et al. 2020 (arXiv:1910.10683); there, it ends what
is read or written, whether or not the document goes on. The decoder reads its target one place
late, after ``decoder_start_token_id``, and every token of the target is told.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from zoo.data.layout import lay_out
from zoo.errors import UsageError
from zoo.objectives.base import Objective, Outcome, Row, Rows, token_loss
from zoo.objectives.packing import Packed, pack, plain
from zoo.objectives.vocabulary import Ids

if TYPE_CHECKING:
    from torch import Tensor, nn

    from zoo.data.corpus import Split

SEQ2SEQ = "seq2seq-lm"  # the loss term
Lengths = Callable[[int], tuple[int, int] | None]


@dataclass(frozen=True)
class Twofold:
    """A ``Measure`` of texts that need room in two rows, the encoder's and the decoder's.

    The decoder's row is as long as full rows of the encoder need it, so that long documents fill
    both. A stretch takes up the larger of its two shares; where these add up to no more than a
    row of the encoder, both rows suffice.

    Attributes:
        length: places in the encoder's row.
        decoder_length: places in the decoder's row.
        rooms: what a stretch of so many tokens takes up; the first entry is for one token.
    """

    length: int
    decoder_length: int
    rooms: Ids

    @classmethod
    def of(cls, lengths: Lengths, length: int) -> "Twofold":
        """Find out what a row holds.

        Args:
            lengths: tokens of a stretch -> places that its source and its target need at most,
                neither less for more tokens; ``None`` for a stretch that is too long whatever
                the row is.
            length: places in the encoder's row.

        Raises:
            UsageError: a row has no place for text.
        """
        found: list[tuple[int, int]] = []
        while (each := lengths(len(found) + 1)) is not None and each[0] <= length:
            found.append(each)
        if not found:
            raise UsageError(f"rows of {length} tokens have no place for text", "make them longer")
        sources, targets = np.array(found, dtype=np.int64).T
        decoder, free = 0, length
        while free >= sources[0]:  # stretches as long as they can be
            most = int(np.searchsorted(sources, free, side="right")) - 1
            decoder += int(targets[most])
            free -= int(sources[most])
        rooms = np.maximum(sources, -(-targets * length // decoder))
        return cls(length, decoder, rooms)

    def room(self, tokens: int) -> int:
        """See ``Measure``."""
        return int(self.rooms[tokens - 1])

    def most(self, places: int) -> int:
        """See ``Measure``."""
        return int(np.searchsorted(self.rooms, places, side="right"))


class Seq2SeqObjective(Objective):
    """A source and a target for each stretch of text. A subclass says which."""

    head: ClassVar[str] = SEQ2SEQ

    @property
    def terms(self) -> Mapping[str, float]:
        """See ``Objective``; the same term for all of them."""
        return {SEQ2SEQ: 1.0}

    @abstractmethod
    def lengths(self, tokens: int) -> tuple[int, int] | None:
        """Return how long source and target of so many tokens are at most, without ends.

        Neither is shorter for more tokens. ``None`` says that they are too many for one stretch.
        """

    @abstractmethod
    def example(self, tokens: Ids, rng: np.random.Generator) -> tuple[Ids, Ids]:
        """Return source and target of a stretch of text, (n,) each, without ends."""

    def rows(self, split: "Split", seed: int) -> Rows:
        """See ``Objective``."""
        return Seq2SeqRows(self, split, seed)

    def loss(self, model: "nn.Module", tensors: "Mapping[str, Tensor]") -> Outcome:
        """See ``Objective``."""
        learner: Any = model
        hidden = learner.hidden(
            tensors["input_ids"],
            tensors["attention_mask"],
            tensors["decoder_input_ids"],
            tensors["decoder_attention_mask"],
        )
        return token_loss(learner, hidden, tensors, SEQ2SEQ)


class Seq2SeqRows(Rows):
    """Rows of sources, and of the targets that belong to them."""

    def __init__(self, objective: Seq2SeqObjective, split: "Split", seed: int) -> None:
        self.objective, self.split = objective, split
        self.end = objective.vocabulary.role("eos")
        self.start: int = objective.config.decoder_start_token_id  # type: ignore[attr-defined]
        self.measure = Twofold.of(self._lengths, objective.length)
        self.layout = lay_out(split, length=objective.length, measure=self.measure, seed=seed)

    def _lengths(self, tokens: int) -> tuple[int, int] | None:
        found = self.objective.lengths(tokens)
        return None if found is None else (found[0] + 1, found[1] + 1)

    def __len__(self) -> int:
        """See ``Rows``."""
        return len(self.layout)

    def row(self, index: int, rng: np.random.Generator) -> Row:
        """See ``Rows``."""
        texts = [self.split.read(*stretch) for stretch in self.layout.row(index)]
        examples = [self.objective.example(text, rng) for text in texts]
        sources = self._packed([np.append(a, self.end) for a, _ in examples], self.measure.length)
        targets = [np.append(b, self.end) for _, b in examples]
        read = self._packed(
            [np.append(self.start, target[:-1]) for target in targets], self.measure.decoder_length
        )
        labels = np.concatenate(targets)
        return Row(
            {
                "input_ids": sources.input_ids,
                "attention_mask": sources.attention_mask,
                "decoder_input_ids": read.input_ids,
                "decoder_attention_mask": read.attention_mask,
            },
            values={"labels": labels},
            places={"places": ("decoder_input_ids", np.flatnonzero(read.attention_mask))},
            counts={SEQ2SEQ: len(labels)},
        )

    def _packed(self, texts: list[Ids], length: int) -> Packed:
        return pack(
            [plain(text) for text in texts], length=length, pad=self.objective.vocabulary.pad
        )
