"""Evaluation of causal language models on completions of prompts."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.evaluation.base import TEXTS_AT_ONCE, LikelihoodEvaluation, Prediction, Result
from zoo.inference.completions import CompletionTokenizer, CompletionTokens
from zoo.inference.processing.batching import batched
from zoo.inference.scoring import CausalScorer, ScoredRow, Scorer, TextScore
from zoo.metrics.intervals import bootstrap_samples
from zoo.metrics.likelihood import likelihood_metrics
from zoo.overrides import override
from zoo.tasks.causal_lm.data import Completion, iter_completions, review_completion

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Completions(LikelihoodEvaluation):
    """Loss and perplexity of completions, given their prompts; see ``Perplexity`` for documents.

    The end-of-text token after a completion counts as part of it. Intervals are over samples.
    """

    name: ClassVar[str] = "causal-lm"
    scorers: ClassVar[tuple[type[Scorer], ...]] = (CausalScorer,)

    def __init__(
        self,
        *args: Any,
        text: str = "text",
        label: str = "label",
        seed: int = 0,
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        self.text = text
        self.label = label
        self.seed = seed

    @override
    def measure(self, files: Sequence[Path]) -> Result:
        import numpy as np

        samples = self.samples(
            lambda problems: iter_completions(files, self.text, self.label, problems),
            review_completion,
        )
        count = sum(1 for _ in samples)  # which finds what cannot be read, before any is scored
        tokens = CompletionStream(
            CompletionTokenizer(self.scorer.tokenizer, self.scorer.max_tokens or 1 << 30),
            iter(samples),
        )
        scores = self.scorer.stream_scores(_rows(tokens), keep=self.kept_tokens)
        scored = self.shown(scores, count, "texts")
        observed = self.observed(samples, (score for _, score in scored), self.row)
        values_of = ([-score.log_prob, score.correct, score.tokens] for score in observed)
        table = np.fromiter(values_of, np.dtype((np.float64, (3,))))

        def metrics(rows: "NDArray[np.integer[Any]]") -> dict[str, float]:
            return likelihood_metrics(*table[rows].sum(0).tolist())

        values = metrics(np.arange(len(table)))
        return Result(
            {
                **values,
                "tokens": int(table[:, 2].sum()),
                "samples": len(table),
                **({"truncated": tokens.truncated} if tokens.truncated else {}),
            },
            {"intervals": bootstrap_samples(metrics, len(table), self.seed)},
        )

    def row(self, sample: Completion, score: TextScore) -> Prediction:
        """Return a sample with its score, for ``zoo eval --predictions``."""
        where = {"location": sample.location, "text": sample.prompt, "label": sample.text}
        return {**where, **self.score_columns(score)}


class CompletionStream:
    """Tokens of prompts and completions, which are tokenized in chunks; counts truncated ones."""

    def __init__(self, tokenizer: CompletionTokenizer, samples: Iterator[Completion]) -> None:
        self._tokenizer = tokenizer
        self._samples = samples
        self.truncated = 0

    def __iter__(self) -> Iterator[CompletionTokens]:
        """Yield the tokens of each text."""
        for chunk in batched(self._samples, TEXTS_AT_ONCE):
            for text in self._tokenizer.completions([(s.prompt or "", s.text) for s in chunk]):
                self.truncated += text.truncated > 0
                yield text


def _rows(tokens: Iterable[CompletionTokens]) -> Iterator[ScoredRow]:
    import numpy as np

    for number, text in enumerate(tokens):
        ids = np.array(text.ids, np.int64)
        positions = np.arange(text.first - 1, len(ids) - 1)
        yield ScoredRow(ids[:-1], (), positions, ids[text.first :], number)
