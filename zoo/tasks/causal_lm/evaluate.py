"""Evaluation of causal language models on completions of prompts."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.errors import UsageError
from zoo.evaluation.base import TEXTS_AT_ONCE, LikelihoodEvaluation, Prediction, Result
from zoo.evaluation.selected_metrics import add_text_metrics
from zoo.inference.completions import CompletionTokenizer, CompletionTokens
from zoo.inference.processing.batching import batched
from zoo.inference.processing.records import TextExample
from zoo.inference.scoring import CausalScorer, ScoredRow, Scorer, TextScore
from zoo.io.limits import MAX_NEW_TOKENS
from zoo.metrics import MetricInput
from zoo.metrics.intervals import bootstrap_samples
from zoo.metrics.likelihood import likelihood_metrics
from zoo.overrides import override
from zoo.plugins.metrics import select_metrics
from zoo.tasks.causal_lm.data import (
    Completion,
    iter_completions,
    prompt_of,
    review_completion,
)
from zoo.tasks.causal_lm.predict import Generate

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Completions(LikelihoodEvaluation):
    """Loss and perplexity of completions, given their prompts; see ``Perplexity`` for documents.

    The end-of-text token after a completion counts as part of it. Intervals are over samples. For
    metrics that the user selects, the model also generates a completion of each prompt.
    """

    name: ClassVar[str] = "causal-lm"
    scorers: ClassVar[tuple[type[Scorer], ...]] = (CausalScorer,)

    def __init__(
        self,
        *args: Any,
        text: str = "text",
        label: str = "label",
        metric: Sequence[str] = (),
        max_new_tokens: int | None = None,  # default: the model's, or the longest completion's
        num_beams: int | None = None,
        seed: int = 0,
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        self.selected_metrics = select_metrics(metric, self.metric_input(), self.name)
        self.max_new_tokens = max_new_tokens
        self.num_beams = num_beams
        if not self.selected_metrics:
            for name, value in {"max_new_tokens": max_new_tokens, "num_beams": num_beams}.items():
                if value is not None:
                    raise UsageError(
                        f"{name} is for metrics of generated texts", "select one with --metric"
                    )
        self.text = text
        self.label = label
        self.seed = seed

    @classmethod
    @override
    def metric_input(cls) -> MetricInput | None:
        return "texts"

    @override
    def measure(self, files: Sequence[Path]) -> Result:
        import numpy as np

        samples = self.samples(
            lambda problems: iter_completions(files, self.text, self.label, problems),
            review_completion,
        )
        count = sum(1 for _ in samples)  # which finds what cannot be read, before any is scored
        texts = self._generate(samples, count) if self.selected_metrics else []
        tokens = self._tokens(samples)
        scores = self.scorer.stream_scores(_rows(tokens), keep=self.kept_tokens)
        scored = self.shown(scores, count, "texts")
        generated = iter(texts)

        def row(sample: Completion, score: TextScore) -> Prediction:
            columns: dict[str, Any] = {"label": sample.label}
            if texts:
                columns["prediction"] = next(generated)
            where = {"location": sample.location, "text": sample.prompt}
            return {**where, **columns, **self.score_columns(score)}

        observed = self.observed(samples, (score for _, score in scored), row)
        values_of = ([-score.log_prob, score.correct, score.tokens] for score in observed)
        table = np.fromiter(values_of, np.dtype((np.float64, (3,))))

        def metrics(rows: "NDArray[np.integer[Any]]") -> dict[str, float]:
            return likelihood_metrics(*table[rows].sum(0).tolist())

        values = metrics(np.arange(len(table)))
        intervals = bootstrap_samples(metrics, len(table), self.seed)
        result = Result(values, {"intervals": intervals})
        if self.selected_metrics:
            references = [sample.references for sample in samples]
            result = add_text_metrics(result, self.selected_metrics, texts, references, self.seed)
        counts = {"tokens": int(table[:, 2].sum()), "samples": len(table)}
        if tokens.truncated:
            counts["truncated"] = tokens.truncated
        return replace(result, metrics={**result.metrics, **counts})

    def _tokens(self, samples: Iterable[Completion]) -> "CompletionStream":
        """Return the tokens of prompts and completions."""
        tokenizer = CompletionTokenizer(self.scorer.tokenizer, self.scorer.max_tokens or 1 << 30)
        return CompletionStream(tokenizer, iter(samples))

    def _generate(self, samples: Iterable[Completion], count: int) -> list[str]:
        """Return a completion of each prompt, without white space at its ends."""
        limit = self.max_new_tokens
        settings = self.checkpoint.model.generation
        if limit is None and "max_new_tokens" not in settings and "max_length" not in settings:
            longest = max(len(text.ids) - text.first for text in self._tokens(samples))
            limit = min(longest, MAX_NEW_TOKENS)
        task = Generate(
            self.checkpoint,
            self.session,
            self.scorer.tokenizer,
            max_new_tokens=limit,
            num_beams=self.num_beams,
        )
        records = (TextExample(prompt_of(s), location=s.location) for s in samples)
        results = self.stream(task, records, count, "generating")
        return [result["generated"].strip() for result in results]


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
