"""Log-likelihoods of texts, and of continuations of a context."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from zoo.errors import UsageError
from zoo.families.base import DECODER_TOKENS
from zoo.inference.generation.languages import target_tokenizer
from zoo.inference.scoring import CausalScorer, ScoredRow, Scorer, pad_rows
from zoo.inference.task_checks import require_head
from zoo.overrides import override
from zoo.tokenizers import Encoded

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from zoo.checkpoint import Checkpoint
    from zoo.tokenizers.tokenizer import Text, TextTokenizer


class Continuation(Encoded):
    """Tokens that are scored, and their context.

    Args:
        context: tokens of the context, which loses its beginning if it is too long.
        ids: the tokens that are scored.
        limit: largest number of tokens of the context; ``None`` for no limit.
        leading: special tokens of a target, which are not scored.
    """

    def __init__(
        self,
        context: Sequence[int],
        ids: list[int],
        limit: int | None,
        leading: Sequence[int] = (),
    ) -> None:
        self.truncated = 0
        if limit is not None:
            self.truncated = max(0, len(context) - limit)
        self.context = list(context[self.truncated :])
        self.ids = ids
        self.leading = leading


class LikelihoodScorer(Scorer):
    """Scores texts and continuations by a model that generates.

    Definitions follow lm-evaluation-harness (``lm_eval/models/huggingface.py`` of version 0.4.13).
    Spaces at the end of a context belong to the continuation. The whole text is tokenized, and the
    tokens after as many as the context has are the continuation. Contexts that are too long lose
    their beginning.
    """

    @abstractmethod
    def tokenize(self, texts: "Sequence[Text]") -> list[Continuation]:
        """Tokenize texts, or pairs of a context and a continuation."""

    @abstractmethod
    def split(self, tokens: Continuation, text: int) -> Iterator[ScoredRow]:
        """Yield the rows of a continuation."""

    def plain(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the token ids of texts, without the special tokens of the template."""
        encoded = self.tokenizer.encode(texts, max_tokens=None, offsets=False)
        return [text_tokens(text) for text in encoded]


def text_tokens(text: Encoded) -> list[int]:
    """Return the token ids of a text, without the special tokens of the template."""
    return [token for token, special in zip(text.ids, text.special, strict=True) if not special]


def split_texts(texts: "Sequence[Text]") -> tuple[list[str], list[str]]:
    """Return the contexts and the continuations of texts; a single text has an empty context."""
    contexts = []
    continuations = []
    for text in texts:
        if isinstance(text, str):
            contexts.append("")
            continuations.append(text)
        else:
            context, continuation = move_spaces(*text)
            contexts.append(context)
            continuations.append(continuation)
    return contexts, continuations


class CausalLikelihood(CausalScorer, LikelihoodScorer):
    """Log-likelihood by a causal language model.

    A text without a context, or with an empty one, is predicted from the token that begins
    documents. More tokens than the model reads at once are scored in windows of that length, the
    last of them with as much context as fits.
    """

    @override
    def tokenize(self, texts: "Sequence[Text]") -> list[Continuation]:
        context_texts, continuation_texts = split_texts(texts)
        full_texts = []
        for context_text, continuation_text in zip(context_texts, continuation_texts, strict=True):
            full_texts.append(context_text + continuation_text)
        full_tokens = self.plain(full_texts)
        context_tokens = self.plain(context_texts)
        continuations = []
        for context, tokens in zip(context_tokens, full_tokens, strict=True):
            ids = tokens[len(context) :]
            if not context:
                context = [self.start_id]
                if ids[:1] == [self.start_id]:
                    ids = ids[1:]
            limit = None
            if self.max_tokens is not None:
                limit = max(self.max_tokens + 1 - len(ids), 1)
            continuations.append(Continuation(context, ids, limit))
        return continuations

    @override
    def split(self, tokens: Continuation, text: int) -> Iterator[ScoredRow]:
        import numpy as np

        ids = np.array([*tokens.context, *tokens.ids], np.int64)
        limit = self.max_tokens or len(ids)
        for start in range(len(tokens.context), len(ids), limit):
            end = min(start + limit, len(ids))
            row = ids[max(end - 1 - limit, 0) : end - 1]
            positions = np.arange(len(row) - (end - start), len(row))
            yield ScoredRow(row, (), positions, ids[start:end], text)


class Seq2SeqLikelihood(LikelihoodScorer):
    """Log-likelihood of a target text, given its source, by an encoder-decoder.

    Special tokens of the target, such as its beginning, its language and its end, are not scored;
    the ones before the text are what the decoder reads first.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.generation = dict(self.checkpoint.model.generation)  # settings of generation

    @cached_property
    def target_tokenizer(self) -> "TextTokenizer":
        """Tokenizer of targets, in the language that generation writes."""
        return target_tokenizer(self.tokenizer, self.generation)

    @property
    def start_id(self) -> int:
        """First token that the decoder reads."""
        config: Any = self.checkpoint.config
        start_id: Any = self.generation.get("decoder_start_token_id")
        if start_id is None:
            start_id = config.decoder_start_token_id
        return int(start_id)

    @property
    def decoder_limit(self) -> int | None:
        """Largest number of tokens that the decoder reads, or ``None``."""
        checkpoint = self.checkpoint
        spec = checkpoint.onnx_spec
        return spec.limits.get(DECODER_TOKENS)

    @override
    def rows(self, encoded: Encoded, text: int) -> Iterator[ScoredRow]:
        """Raise an error: a target needs a source."""
        raise UsageError("an encoder-decoder scores a text given its source")

    @override
    def tokenize(self, texts: "Sequence[Text]") -> list[Continuation]:
        source_texts, target_texts = split_texts(texts)
        sources = self.tokenizer.encode(source_texts, max_tokens=None, offsets=False)
        targets = self.target_tokenizer.encode(target_texts, max_tokens=None, offsets=False)
        continuations = []
        for source, target in zip(sources, targets, strict=True):
            ids = text_tokens(target)
            leading: list[int] = []
            if ids:
                first_position = list(target.special).index(False)
                leading = target.ids[:first_position]
            continuations.append(Continuation(source.ids, ids, self.max_tokens, leading))
        return continuations

    @override
    def split(self, tokens: Continuation, text: int) -> Iterator[ScoredRow]:
        import numpy as np

        leading = [self.start_id, *tokens.leading]
        limit = self.decoder_limit
        count = len(leading) - 1 + len(tokens.ids)
        if limit is not None and count > limit:
            raise UsageError(
                f"a target has {count} tokens, and the decoder takes {limit}", "shorten it"
            )
        if tokens.ids:
            ids = np.array([*leading, *tokens.ids], np.int64)
            positions = np.arange(len(leading) - 1, len(ids) - 1)
            yield ScoredRow(ids[:-1], (), positions, ids[len(leading) :], text, tokens.context)

    @override
    def inputs(self, rows: Sequence[ScoredRow]) -> "dict[str, NDArray[np.int64]]":
        ids, mask = pad_rows([row.source for row in rows], self.tokenizer.pad_id)
        targets, _ = pad_rows([row.ids for row in rows], self.tokenizer.pad_id)
        return {"input_ids": ids, "attention_mask": mask, "decoder_input_ids": targets}

    @override
    def cost(self, row: ScoredRow) -> int:
        return max(len(row.source), len(row.ids))


# Task of the head -> its scorer.
LIKELIHOODS: dict[str, type[LikelihoodScorer]] = {
    "generate": CausalLikelihood,
    "seq2seq": Seq2SeqLikelihood,
}


def likelihood_type(checkpoint: "Checkpoint") -> type[LikelihoodScorer]:
    """Return the scorer of a checkpoint."""
    require_head(checkpoint, "score")
    scorers = [scorer for task, scorer in LIKELIHOODS.items() if task in checkpoint.head.tasks]
    return scorers[0]


def move_spaces(context: str, continuation: str) -> tuple[str, str]:
    """Move spaces from the end of a context to its continuation."""
    end = len(context.rstrip())
    return context[:end], context[end:] + continuation
