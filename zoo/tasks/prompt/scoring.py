"""Log-probabilities of label words in prompts.

* A causal model predicts the word after the prompt up to it: the sum of the log-probabilities of
  the word's tokens.
* A masked model fills the word in: its pseudo-log-likelihood, the sum over its tokens of the
  log-probability of each, masked, given all others (Salazar et al. 2020, arXiv:1910.14659). Of a
  word of one token this is the log-softmax at the mask, as in PET (Schick and Schütze 2021,
  arXiv:2001.07676).
* An encoder-decoder predicts a label at the end of the template as its target; one in the middle
  is a span of span corruption: a sentinel stands for it, and the word follows the sentinel in the
  target.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from zoo.errors import UsageError
from zoo.inference.likelihood import CausalLikelihood, Seq2SeqLikelihood
from zoo.inference.scoring import MaskedScorer, ScoredRow, Scorer
from zoo.overrides import override
from zoo.tasks.prompt.template import LABEL, Prompt, Template
from zoo.tokenizers import Encoded

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from zoo.checkpoint import Checkpoint
    from zoo.inference import Session
    from zoo.tokenizers import TextTokenizer

SENTINEL = "<extra_id_0>"  # of a span that is left out


class WordRow(NamedTuple):
    """A row of the model's input, and some tokens of a word that it predicts."""

    source: tuple[int, ...]  # of the encoder of an encoder-decoder
    ids: tuple[int, ...]
    type_ids: tuple[int, ...]
    positions: tuple[int, ...]  # of the logits
    labels: tuple[int, ...]  # the tokens


class WordScorer(ABC):
    """Scores the words of labels in prompts."""

    kind: type[Scorer]

    def __init__(
        self,
        checkpoint: "Checkpoint",
        session: "Session",
        tokenizer: "TextTokenizer",
        template: Template,
    ) -> None:
        self.scorer = self.kind(checkpoint, session, tokenizer)
        self.tokenizer = tokenizer
        self.template = template
        self.name = str(checkpoint.path)
        self.require_suitable()

    def require_suitable(self) -> None:  # noqa: B027 (optional)
        """Check that the model predicts a label where the template has it."""

    @abstractmethod
    def rows(self, prompts: Sequence[Prompt]) -> Iterator[list[WordRow]]:
        """Yield the rows of each prompt, which has a word in its slot."""

    def score(self, prompts: Sequence[Prompt]) -> "tuple[NDArray[np.float64], NDArray[np.int64]]":
        """Return the log-probability of the word of each prompt, and its number of tokens."""
        import numpy as np

        log_probs = np.zeros(len(prompts))
        tokens = np.zeros(len(prompts), np.int64)
        unknown = self.tokenizer.role_id("unk")
        # words of one token often have the same input, which is computed once
        shared: dict[Any, list[tuple[int, WordRow]]] = {}
        for number, (prompt, rows) in enumerate(zip(prompts, self.rows(prompts), strict=True)):
            if not any(row.labels for row in rows):
                raise UsageError(
                    f"the label word {_word(prompt)!r} has no tokens of its own",
                    "give the label another word",
                )
            if any(unknown in row.labels for row in rows):
                raise unknown_word(_word(prompt))
            for row in rows:
                shared.setdefault((row.source, row.ids, row.type_ids), []).append((number, row))
        owners = [
            [number for number, row in members for _ in row.labels] for members in shared.values()
        ]
        merged = (_merged(members, index) for index, members in enumerate(shared.values()))
        for numbers, (_, values, _) in zip(owners, self.scorer.run(merged), strict=True):
            np.add.at(log_probs, numbers, values)
            np.add.at(tokens, numbers, 1)
        return log_probs, tokens


def unknown_word(word: str) -> UsageError:
    """Return the error of a word that the tokenizer does not know."""
    return UsageError(
        f"the label word {word!r} has a part that the tokenizer does not know",
        "give the label another word",
    )


def _merged(members: Sequence[tuple[int, WordRow]], text: int) -> ScoredRow:
    """Return rows with the same input as one."""
    import numpy as np

    rows = [row for _, row in members]
    return ScoredRow(
        np.array(rows[0].ids, np.int64),
        rows[0].type_ids,
        np.array([position for row in rows for position in row.positions], np.int64),
        np.array([token for row in rows for token in row.labels], np.int64),
        text,
        rows[0].source,
    )


class MaskedWords(WordScorer):
    """Words that a masked model fills in."""

    kind = MaskedScorer
    scorer: MaskedScorer

    @override
    def rows(self, prompts: Sequence[Prompt]) -> Iterator[list[WordRow]]:
        return masked_rows(prompts, self.tokenizer, self.scorer.mask_id)


def masked_rows(
    prompts: Sequence[Prompt], tokenizer: "TextTokenizer", mask_id: int
) -> Iterator[list[WordRow]]:
    """Yield the rows of each prompt, one for each token of its word, which is masked there."""
    encoded = tokenizer.encode([p.text for p in prompts], max_tokens=None)
    for prompt, text in zip(prompts, encoded, strict=True):
        rows = []
        start, end = prompt.spans[LABEL]
        start = len(prompt.text[:start].rstrip())  # the space before a word is a part of it
        for position in tokens_in(text, (start, end)):
            masked = list(text.ids)
            masked[position] = mask_id
            token = text.ids[position]
            rows.append(WordRow((), tuple(masked), tuple(text.type_ids), (position,), (token,)))
        yield rows


class CausalWords(WordScorer):
    """Words that a causal model predicts after a prompt."""

    kind = CausalLikelihood
    scorer: CausalLikelihood

    @override
    def require_suitable(self) -> None:
        if not self.template.label_is_last:
            raise UsageError(
                f"{self.name} reads from left to right, and the template has text after the label",
                "put {label} at its end",
            )

    @override
    def rows(self, prompts: Sequence[Prompt]) -> Iterator[list[WordRow]]:
        words = [_word(prompt) for prompt in prompts]
        contexts = [prompt.before(LABEL) for prompt in prompts]
        for tokens in self.scorer.tokenize(list(zip(contexts, words, strict=True))):
            first = len(tokens.context)
            ids = (*tokens.context, *tokens.ids)
            positions = tuple(range(first - 1, len(ids) - 1))
            yield [WordRow((), ids[:-1], (), positions, tuple(tokens.ids))]


class TargetWords(WordScorer):
    """Words that an encoder-decoder generates."""

    kind = Seq2SeqLikelihood
    scorer: Seq2SeqLikelihood

    @override
    def require_suitable(self) -> None:
        self.sentinel: list[int] = []
        if not self.template.label_is_last:
            token = self.tokenizer.token_id(SENTINEL)
            if token is None:
                raise UsageError(
                    f"the tokenizer of {self.name} has no {SENTINEL}, which stands for a label in "
                    "the middle of a template",
                    "put {label} at its end",
                )
            self.sentinel = [token]

    @override
    def rows(self, prompts: Sequence[Prompt]) -> Iterator[list[WordRow]]:
        config: Any = self.scorer.checkpoint.config
        sources = []
        for prompt in prompts:
            start, end = prompt.spans[LABEL]
            marked = prompt.text[:start] + SENTINEL + prompt.text[end:]
            sources.append(marked if self.sentinel else prompt.before(LABEL).rstrip())
        encoded = self.tokenizer.encode(sources, max_tokens=None, offsets=False)
        targets = self.scorer.plain([_word(prompt) for prompt in prompts])
        for source, word in zip(encoded, targets, strict=True):
            before = [config.decoder_start_token_id, *self.sentinel]
            positions = tuple(range(len(before) - 1, len(before) - 1 + len(word)))
            ids = (*before, *word[:-1])
            yield [WordRow(tuple(source.ids), ids, (), positions, tuple(word))]


def _word(prompt: Prompt) -> str:
    start, end = prompt.spans[LABEL]
    return prompt.text[start:end]


def tokens_in(text: Encoded, span: tuple[int, int]) -> list[int]:
    """Return the positions of the tokens that have characters of a span."""
    start, end = span
    return [
        position
        for position, ((first, last), special) in enumerate(
            zip(text.offsets, text.special, strict=True)
        )
        if not special and first < end and last > start
    ]


# task of the head -> scorer of words
WORD_SCORERS: Mapping[str, type[WordScorer]] = {
    "fill-mask": MaskedWords,  # before the next: a head with both reads both sides of a token
    "generate": CausalWords,
    "seq2seq": TargetWords,
}


def word_scorer(checkpoint: "Checkpoint") -> type[WordScorer]:
    """Return the scorer of words of a checkpoint, whose head predicts tokens."""
    return next(kind for task, kind in WORD_SCORERS.items() if task in checkpoint.head.tasks)
