"""Perplexity of texts: exp of the mean negative log-likelihood of their tokens."""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.data.readers.documents import ReaderConfig, expand_paths, read_documents
from zoo.errors import UsageError
from zoo.evaluation.base import TEXTS_AT_ONCE, LikelihoodEvaluation, RestartableIterable, Result
from zoo.inference.scoring import CausalScorer, MaskedScorer, ScoredRow, Scorer, TextScore
from zoo.inference.task_warnings import report_cut_texts
from zoo.io.limits import MAX_TEXT_CHARACTERS
from zoo.metrics.likelihood import likelihood_metrics
from zoo.overrides import override

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from zoo.tokenizers import Encoded, TextTokenizer


class Perplexity(LikelihoodEvaluation):
    """Perplexity of a causal language model over documents.

    A document that is longer than the model's limit is scored in windows: each starts ``stride``
    tokens after the one before it, by default half a window, and scores the tokens that no window
    before it has scored. A smaller stride gives more context and takes more time.

    ``loss`` is the mean negative log-likelihood per token in nats, ``perplexity`` its
    exponential, and ``bits_per_byte`` the same sum in bits per byte of the text, which models
    with different tokenizers share.
    """

    name: ClassVar[str] = "perplexity"
    scorers: ClassVar[tuple[type[Scorer], ...]] = (CausalScorer,)
    counterparts: ClassVar[Mapping[type[Scorer], str]] = {MaskedScorer: "pseudo-perplexity"}

    def __init__(self, *args: Any, stride: int | None = None, **options: Any) -> None:
        super().__init__(*args, **options)
        self.width = self.scorer.max_tokens
        if self.width is not None and not 0 < (stride or 1) < self.width:
            raise UsageError(
                f"the stride is {stride}, and a window has {self.width} tokens",
                "give a smaller --stride",
            )
        self.stride = stride or None
        if self.stride is None and self.width is not None:
            self.stride = self.width // 2

    @override
    def measure(self, files: Sequence[Path]) -> Result:
        documents = RestartableIterable(lambda: read_texts(files, self.limit), None)
        # Counting reads all files, and so finds what cannot be read before anything is scored.
        count = sum(1 for _ in documents)
        texts = TextStream(documents)
        scores = self.scorer.stream_scores(self._windows(texts), keep=self.kept_tokens)
        shown_scores = self.shown(scores, count, "texts")
        return likelihood_result(self.scored(documents, shown_scores), texts)

    def _windows(self, texts: "TextStream") -> Iterator[ScoredRow]:
        for number, text in enumerate(texts.encode(self.scorer.tokenizer, None)):
            for row in self.scorer.rows(text, number):
                yield from split_row(row, self.width, self.stride)


class PseudoPerplexity(LikelihoodEvaluation):
    """Perplexity of a masked language model: each token is predicted from all others.

    Salazar et al. 2020 (arXiv:1910.14659, section 2.2). A text is a line of a document, such as a
    paragraph, cut at the model's limit. The metrics are the same as for ``Perplexity``, plus
    ``accuracy``. They cannot be compared with causal models, which see less context. If a text
    was cut, ``bits_per_byte`` is left out.
    """

    name: ClassVar[str] = "pseudo-perplexity"
    scorers: ClassVar[tuple[type[Scorer], ...]] = (MaskedScorer,)
    counterparts: ClassVar[Mapping[type[Scorer], str]] = {CausalScorer: "perplexity"}

    @override
    def measure(self, files: Sequence[Path]) -> Result:
        def read() -> Iterator[str]:
            for text in read_texts(files, None):
                yield from (line for line in text.splitlines() if line)

        lines = RestartableIterable(read, self.limit)
        count = sum(1 for _ in lines)
        texts = TextStream(lines)
        scores = self.scorer.stream_scores(self._rows(texts), keep=self.kept_tokens)
        shown_scores = self.shown(scores, count, "texts")
        result = likelihood_result(self.scored(lines, shown_scores), texts)
        if not texts.truncated:
            return result
        metrics = dict(result.metrics)
        report_cut_texts(texts.cut_texts, texts.count, self.scorer.max_tokens, "")
        # The size is that of the full texts, and only a part of their tokens was scored.
        metrics.pop("bits_per_byte", None)
        metrics["truncated_tokens"] = texts.truncated
        return Result(metrics)

    def _rows(self, texts: "TextStream") -> Iterator[ScoredRow]:
        encoded = texts.encode(self.scorer.tokenizer, self.scorer.max_tokens)
        for number, text in enumerate(encoded):
            yield from self.scorer.rows(text, number)


class TextStream:
    """Texts that are tokenized in chunks and dropped.

    Attributes:
        count, size: number of texts that were read, and of their bytes.
        cut_texts, truncated: number of texts that were cut, and of tokens that they lost.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = iter(texts)
        self.count = 0
        self.size = 0
        self.truncated = 0
        self.cut_texts = 0

    def encode(self, tokenizer: "TextTokenizer", max_tokens: int | None) -> "Iterator[Encoded]":
        """Yield the tokens of each text, without positions in characters."""
        while True:
            chunk = list(itertools.islice(self._chunk(), TEXTS_AT_ONCE))
            if not chunk:
                return
            for text in tokenizer.encode(chunk, max_tokens=max_tokens, offsets=False):
                self.truncated += text.truncated
                self.cut_texts += text.truncated > 0
                yield text

    def _chunk(self) -> Iterator[str]:
        """Yield texts until they have ``MAX_TEXT_CHARACTERS``."""
        characters = 0
        for text in self._texts:
            self.count = self.count + 1
            self.size = self.size + len(text.encode())
            yield text
            characters += len(text)
            if characters > MAX_TEXT_CHARACTERS:
                return


def read_texts(files: Sequence[Path], limit: int | None) -> Iterator[str]:
    """Yield up to ``limit`` documents of files, which blank lines separate in plain text."""
    count = 0
    for document in read_documents(expand_paths(files), ReaderConfig()):
        if count == limit:
            return
        count += 1
        yield document
    if not count:
        raise UsageError(f"{files[0]} has no text", "give a file with text")


def split_row(row: ScoredRow, width: int | None, stride: int | None) -> Iterator[ScoredRow]:
    """Split a row of a causal model into windows of ``width`` tokens; each token is scored once.

    Position k predicts the token at k + 1. Windows start ``stride`` tokens apart.
    """
    import numpy as np

    if width is None or stride is None or len(row.ids) <= width:
        yield row
        return
    scored_labels = 0  # The number of labels that the previous windows have scored.
    start = 0
    while scored_labels < len(row.labels):
        ids: NDArray[np.int64] = row.ids[start : start + width]
        end = start + len(ids) - 1  # The window has the labels before this one.
        positions = np.arange(scored_labels - start, end - start)
        yield ScoredRow(ids, (), positions, row.labels[scored_labels:end], row.text)
        scored_labels = end
        start = start + stride


def likelihood_result(scores: Iterable[TextScore], texts: TextStream) -> Result:
    """Return the metrics of log-likelihoods over texts, which are all tokenized by the end."""
    total = 0.0
    tokens = 0
    correct = 0
    for score in scores:
        total -= score.log_prob
        tokens = tokens + score.tokens
        correct = correct + score.correct
    if not tokens:
        raise UsageError("the texts have no tokens to score", "give more text")
    metrics = likelihood_metrics(total, correct, tokens, texts.size)
    return Result({**metrics, "tokens": tokens, "texts": texts.count})
