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
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from zoo.errors import UsageError
from zoo.inference.likelihood import CausalLikelihood, Seq2SeqLikelihood
from zoo.inference.scoring import MaskedScorer, ScoredRow, Scorer
from zoo.overrides import override
from zoo.tasks.prompt.template import LABEL, Prompt, PromptTemplate
from zoo.tokenizers import Encoded

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from zoo.checkpoint import Checkpoint
    from zoo.inference import Session
    from zoo.tokenizers import TextTokenizer

SENTINEL = "<extra_id_0>"  # the token that stands for a span that is left out


class WordRow(NamedTuple):
    """A row of the model's input, and some tokens of a word that it predicts."""

    source: tuple[int, ...]  # Tokens that the encoder of an encoder-decoder reads.
    ids: tuple[int, ...]
    type_ids: tuple[int, ...]
    positions: tuple[int, ...]  # Positions of the logits.
    labels: tuple[int, ...]  # The tokens of the word.


class WordScorer(ABC):
    """Scores the words of labels in prompts."""

    scorer_class: type[Scorer]

    def __init__(
        self,
        checkpoint: "Checkpoint",
        session: "Session",
        tokenizer: "TextTokenizer",
        template: PromptTemplate,
    ) -> None:
        self.scorer = self.scorer_class(checkpoint, session, tokenizer)
        self.tokenizer = tokenizer
        self.template = template
        self.name = str(checkpoint.path)
        self.require_suitable()

    def require_suitable(self) -> None:  # noqa: B027 (optional)
        """Check that the model predicts a label where the template has it."""

    @abstractmethod
    def rows(self, prompts: Sequence[Prompt]) -> Iterator[list[WordRow]]:
        """Yield the rows of each prompt, which has a word in its slot."""

    def score(
        self, prompts: Sequence[Prompt], *, on_batch: Callable[[float], None] | None = None
    ) -> "tuple[NDArray[np.float64], NDArray[np.int64]]":
        """Return the log-probability of the word of each prompt, and its number of tokens.

        ``on_batch`` is called after each batch with the part of the work that is done, 0 to 1.
        """
        import numpy as np

        log_probs = np.zeros(len(prompts))
        tokens = np.zeros(len(prompts), np.int64)
        unknown_id = self.tokenizer.role_id("unk")
        # Words of one token often have the same input, which is computed once: each input has a
        # list of prompts and rows.
        inputs: dict[Any, list[tuple[int, WordRow]]] = {}
        for number, (prompt, rows) in enumerate(zip(prompts, self.rows(prompts), strict=True)):
            if not any(row.labels for row in rows):
                raise UsageError(
                    f"the label word {_word(prompt)!r} has no tokens of its own",
                    "give the label another word",
                )
            if any(unknown_id in row.labels for row in rows):
                raise unknown_word(_word(prompt))
            for row in rows:
                inputs.setdefault((row.source, row.ids, row.type_ids), []).append((number, row))
        scored_rows = []
        label_prompts = []  # For each input, the prompts of its labels.
        for index, members in enumerate(inputs.values()):
            scored_rows.append(_merge_rows([row for _, row in members], index))
            numbers: list[int] = []
            for number, row in members:
                numbers += [number] * len(row.labels)
            label_prompts.append(numbers)

        def report(rows_done: int) -> None:
            if on_batch is not None:
                on_batch(rows_done / len(scored_rows))

        results = self.scorer.run(scored_rows, on_batch=report)
        for numbers, (_, values, _) in zip(label_prompts, results, strict=True):
            np.add.at(log_probs, numbers, values)
            np.add.at(tokens, numbers, 1)
        return log_probs, tokens


def unknown_word(word: str) -> UsageError:
    """Return the error of a word that the tokenizer does not know."""
    return UsageError(
        f"the label word {word!r} has a part that the tokenizer does not know",
        "give the label another word",
    )


def _merge_rows(rows: Sequence[WordRow], text: int) -> ScoredRow:
    """Return rows with the same input as one."""
    import numpy as np

    positions: list[int] = []
    labels: list[int] = []
    for row in rows:
        positions += row.positions
        labels += row.labels
    return ScoredRow(
        np.array(rows[0].ids, np.int64),
        rows[0].type_ids,
        np.array(positions, np.int64),
        np.array(labels, np.int64),
        text,
        rows[0].source,
    )


class MaskedWords(WordScorer):
    """Words that a masked model fills in."""

    scorer_class = MaskedScorer
    scorer: MaskedScorer

    @override
    def rows(self, prompts: Sequence[Prompt]) -> Iterator[list[WordRow]]:
        return masked_rows(prompts, self.tokenizer, self.scorer.mask_id)


def masked_rows(
    prompts: Sequence[Prompt], tokenizer: "TextTokenizer", mask_id: int
) -> Iterator[list[WordRow]]:
    """Yield the rows of each prompt, one for each token of its word, which is masked there."""
    encoded = tokenizer.encode([prompt.text for prompt in prompts], max_tokens=None)
    for prompt, text in zip(prompts, encoded, strict=True):
        rows = []
        start, end = prompt.spans[LABEL]
        # The space before a word is a part of it.
        start = len(prompt.text[:start].rstrip())
        for position in tokens_in(text, (start, end)):
            masked_ids = list(text.ids)
            masked_ids[position] = mask_id
            row = WordRow(
                source=(),
                ids=tuple(masked_ids),
                type_ids=tuple(text.type_ids),
                positions=(position,),
                labels=(text.ids[position],),
            )
            rows.append(row)
        yield rows


class CausalWords(WordScorer):
    """Words that a causal model predicts after a prompt."""

    scorer_class = CausalLikelihood
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
            ids = (*tokens.context, *tokens.ids)
            positions = tuple(range(len(tokens.context) - 1, len(ids) - 1))
            yield [WordRow((), ids[:-1], (), positions, tuple(tokens.ids))]


class TargetWords(WordScorer):
    """Words that an encoder-decoder generates."""

    scorer_class = Seq2SeqLikelihood
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
            if self.sentinel:
                start, end = prompt.spans[LABEL]
                sources.append(prompt.text[:start] + SENTINEL + prompt.text[end:])
            else:
                sources.append(prompt.before(LABEL).rstrip())
        encoded = self.tokenizer.encode(sources, max_tokens=None, offsets=False)
        targets = self.scorer.plain([_word(prompt) for prompt in prompts])
        leading_ids = [config.decoder_start_token_id, *self.sentinel]
        first_position = len(leading_ids) - 1
        for source, word in zip(encoded, targets, strict=True):
            positions = tuple(range(first_position, first_position + len(word)))
            ids = (*leading_ids, *word[:-1])
            yield [WordRow(tuple(source.ids), ids, (), positions, tuple(word))]


def _word(prompt: Prompt) -> str:
    start, end = prompt.spans[LABEL]
    return prompt.text[start:end]


def tokens_in(text: Encoded, span: tuple[int, int]) -> list[int]:
    """Return the positions of the tokens that have characters of a span."""
    start, end = span
    positions = []
    tokens = zip(text.offsets, text.special, strict=True)
    for position, ((token_start, token_end), is_special) in enumerate(tokens):
        if not is_special and token_start < end and token_end > start:
            positions.append(position)
    return positions


# Task of the head -> scorer of words. A head that fills masks and generates reads both sides of a
# token, so that filling masks comes first.
WORD_SCORERS: Mapping[str, type[WordScorer]] = {
    "fill-mask": MaskedWords,
    "generate": CausalWords,
    "seq2seq": TargetWords,
}


def word_scorer(checkpoint: "Checkpoint") -> type[WordScorer]:
    """Return the scorer of words of a checkpoint, whose head predicts tokens."""
    scorers = [scorer for task, scorer in WORD_SCORERS.items() if task in checkpoint.head.tasks]
    return scorers[0]
